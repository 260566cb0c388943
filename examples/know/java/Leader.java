import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;

/**
 * Says when this pod begins to lead, and when it stops.
 *
 * <pre>java Leader.java [DIRECTORY]      DIRECTORY is where the downwardAPI volume is mounted; default: /etc/podinfo</pre>
 */
public class Leader {
    /** Returns the term if this pod leads, else 0. */
    static long leadingTerm(Path directory) {
        for (int attempt = 0; attempt < 3; attempt++) {
            try {
                // Kubelet never writes to a file that can be seen. It writes both files to a new directory, lets the link ..data
                // point to it, and deletes the old directory. So follow the link once, and read both files there: they belong
                // together.
                Path version = directory.resolve("..data").toRealPath();
                String role = Files.readString(version.resolve("role"));
                String term = Files.readString(version.resolve("term"));
                return role.equals("leader") ? Long.parseLong(term) : 0;
            } catch (IOException | NumberFormatException e) {
                // Kubelet has just deleted that directory, and there is a newer one; or there are no such files.
            }
        }
        return 0;
    }

    /** Put your program here: begin with this term, or stop at once if it is 0. */
    static synchronized void changed(long term) {
        System.out.println(term == 0 ? "not leading" : "leading in term " + term);
    }

    /** Kubelet does not change the files of a pod that is being deleted: SIGTERM is how it learns that it leads no longer. */
    static synchronized void stop() {
        changed(0);
        Runtime.getRuntime().halt(0); // before the lock is released: nothing begins after this
    }

    public static void main(String[] arguments) throws InterruptedException {
        Path directory = Path.of(arguments.length > 0 ? arguments[0] : "/etc/podinfo");
        Runtime.getRuntime().addShutdownHook(new Thread(Leader::stop));
        long before = -1;
        while (true) {
            long term = leadingTerm(directory);
            if (term != before) {
                changed(term);
            }
            before = term;
            Thread.sleep(100);
        }
    }
}
