import java.io.IOException;
import java.net.InetAddress;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse.BodyHandlers;
import java.time.Duration;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * Says when this pod begins to lead, and when it stops: by asking {@code lictor observe}, or another leader-elector sidecar.
 *
 * <pre>java Leader.java [URL [NAME]]      URL: default http://localhost:4040; NAME: this pod's, default the host's name</pre>
 */
public class Leader {
    /** The standard library reads no JSON. Names of pods have no quotation marks. */
    static final Pattern NAME = Pattern.compile("\"name\"\\s*:\\s*\"([^\"]*)\"");

    static final HttpClient CLIENT = HttpClient.newBuilder().connectTimeout(Duration.ofSeconds(2)).build();

    /** Returns whether this pod leads. Whoever gets no answer does not lead. */
    static boolean leads(URI url, String name) throws InterruptedException {
        try {
            HttpRequest request = HttpRequest.newBuilder(url).timeout(Duration.ofSeconds(2)).build();
            var answer = CLIENT.send(request, BodyHandlers.ofString());
            Matcher found = NAME.matcher(answer.body());
            return answer.statusCode() == 200 && found.find() && found.group(1).equals(name);
        } catch (IOException e) {
            return false;
        }
    }

    /** Put your program here: begin, or stop at once. */
    static synchronized void changed(boolean leads) {
        System.out.println(leads ? "leading" : "not leading");
    }

    static synchronized void stop() {
        changed(false);
        Runtime.getRuntime().halt(0); // before the lock is released: nothing begins after this
    }

    public static void main(String[] arguments) throws InterruptedException, IOException {
        URI url = URI.create(arguments.length > 0 ? arguments[0] : "http://localhost:4040");
        String name = arguments.length > 1 ? arguments[1] : InetAddress.getLocalHost().getHostName();
        Runtime.getRuntime().addShutdownHook(new Thread(Leader::stop));
        Boolean before = null;
        while (true) {
            boolean now = leads(url, name);
            if (before == null || now != before) {
                changed(now);
            }
            before = now;
            Thread.sleep(1000);
        }
    }
}
