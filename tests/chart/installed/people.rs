//! What people may do who have one of Kubernetes' own roles in a namespace, by the ClusterRoles `lictor-view` and `lictor-edit`.

use lictor_testing::kubernetes::{Cluster, Lab, eventually};
use serde_json::{Value, json};

/// A question to the API server: whether the user may do this.
struct Question {
    user: &'static str,
    verb: &'static str,
    group: &'static str,
    resource: &'static str,
    /// Empty: for what belongs to no namespace.
    namespace: String,
    /// The right answer.
    may: bool,
}

/// Binds users to `view`, `edit` and `admin` in the lab's namespace, and asks the API server what they may do.
pub async fn see_classes_and_run_elections(cluster: &'static Cluster, lab: &Lab) {
    let namespace = lab.namespace.as_str();
    for role in ["view", "edit", "admin"] {
        let (binding, bound) = (format!("people-{role}"), format!("--clusterrole={role}"));
        cluster.kubectl(&["-n", namespace, "create", "rolebinding", &binding, &bound, &format!("--user={role}")]);
    }
    let moves = ["create", "rolebinding", "people-mover", "--clusterrole=lictor-switchover", "--user=mover"];
    cluster.kubectl(&[["-n", namespace].as_slice(), &moves].concat());
    cluster.kubectl(&["create", "clusterrolebinding", "people-auditor", "--clusterrole=view", "--user=auditor"]);
    // A controller adds the rules to the roles when it likes.
    eventually("each may do what they should, and no more", || async { wrong(cluster, &questions(namespace)) }).await;

    // What is allowed, done.
    let kubectl_as = |user: &str, arguments: &[&str], input: Option<&str>| {
        cluster.try_kubectl(&[&["--as", user], arguments].concat(), input)
    };
    let told = kubectl_as("view", &["get", "lec", "consul", "-oyaml"], None).unwrap_or_else(|error| panic!("{error}"));
    assert!(told.contains("name: consul-token"), "a class names its Secret, and has none in it: {told}");
    let election = json!({
        "apiVersion": "lictor.dev/v1alpha1", "kind": "LeaderElection",
        "metadata": {"name": "mine", "namespace": namespace}, "spec": {"selector": {"matchLabels": {"app": "mine"}}},
    });
    let refused = kubectl_as("view", &["create", "-f", "-"], Some(&election.to_string())).expect_err("it is refused");
    assert!(refused.contains("cannot create resource \"leaderelections\""), "{refused}");
    for arguments in [["create", "-f", "-"].as_slice(), &["-n", namespace, "delete", "le", "mine"]] {
        kubectl_as("edit", arguments, Some(&election.to_string())).unwrap_or_else(|error| panic!("{error}"));
    }

    // Who asks for a switchover, may name nobody else.
    let switchover = |name: &str, by: Option<&str>| {
        let mut object = json!({
            "apiVersion": "lictor.dev/v1alpha1", "kind": "Switchover", "metadata": {"name": name, "namespace": namespace},
            "spec": {"electionName": "nobody", "fromTerm": 1},
        });
        if let Some(by) = by {
            object["spec"]["requestedBy"] = json!(by);
        }
        object.to_string()
    };
    let create = ["create", "-f", "-"];
    for user in ["mover", "edit"] {
        for (name, by) in [("named", Some(user)), ("unnamed", None)] {
            kubectl_as(user, &create, Some(&switchover(name, by))).unwrap_or_else(|error| panic!("{error}"));
            let deletes = ["-n", namespace, "delete", "swo", name];
            kubectl_as(user, &deletes, None).unwrap_or_else(|error| panic!("{error}"));
        }
        let refused = kubectl_as(user, &create, Some(&switchover("another", Some("ann")))).expect_err("it is refused");
        let says = format!("spec.requestedBy is ann, and you are {user}: write that, or leave the field out");
        assert!(refused.contains(&says), "{refused}");
    }
    let refused = kubectl_as("view", &create, Some(&switchover("viewed", None))).expect_err("it is refused");
    assert!(refused.contains("cannot create resource \"switchovers\""), "{refused}");
}

fn questions(own: &str) -> Vec<Question> {
    let reads = ["get", "list", "watch"];
    let writes = ["create", "update", "patch", "delete", "deletecollection"];
    let mut questions = Vec::new();
    let mut ask = |user, verb, resource: &'static str, namespace: &str, may| {
        let group = if resource == "secrets" { "" } else { "lictor.dev" };
        questions.push(Question { user, verb, group, resource, namespace: namespace.to_owned(), may });
    };
    for user in ["view", "edit", "admin"] {
        for verb in reads {
            ask(user, verb, "leaderelections", own, true);
            ask(user, verb, "switchovers", own, true);
            ask(user, verb, "switchovers", "bank", false);
            ask(user, verb, "leaderelections", "bank", false);
            ask(user, verb, "electionclasses", "", true);
            ask(user, verb, "secrets", "lictor", false);
        }
        for verb in writes {
            ask(user, verb, "leaderelections", own, user != "view");
            ask(user, verb, "switchovers", own, user != "view");
            ask(user, verb, "switchovers/status", own, false);
            ask(user, verb, "leaderelections", "bank", false);
            ask(user, verb, "leaderelections/status", own, false);
            ask(user, verb, "electionclasses", "", false);
            ask(user, verb, "electionclasses/status", "", false);
        }
    }
    for verb in ["get", "list", "watch", "create", "delete"] {
        ask("mover", verb, "switchovers", own, true);
        ask("mover", verb, "switchovers", "bank", false);
    }
    for verb in writes {
        ask("mover", verb, "leaderelections", own, false);
        ask("mover", verb, "switchovers/status", own, false);
    }
    ask("mover", "get", "leaderelections", own, true);
    ask("mover", "update", "switchovers", own, false);
    ask("view", "get", "secrets", own, false);
    // Bound to `view` in the whole cluster, and in no group.
    ask("auditor", "list", "leaderelections", "bank", true);
    ask("auditor", "list", "electionclasses", "", true);
    ask("auditor", "patch", "electionclasses", "", false);
    questions
}

/// Returns an error that names what the API server answers wrongly.
fn wrong(cluster: &Cluster, questions: &[Question]) -> Result<(), String> {
    let review = |question: &Question| {
        let (resource, subresource) = question.resource.split_once('/').unwrap_or((question.resource, ""));
        let attributes = json!({
            "verb": question.verb, "group": question.group, "resource": resource, "subresource": subresource,
            "namespace": question.namespace,
        });
        let groups = if question.user == "auditor" { json!([]) } else { json!(["system:authenticated"]) };
        json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
            "spec": {"user": question.user, "groups": groups, "resourceAttributes": attributes},
        })
    };
    let list = json!({"apiVersion": "v1", "kind": "List", "items": questions.iter().map(review).collect::<Vec<_>>()});
    let told = cluster.try_kubectl(&["create", "-ojson", "-f", "-"], Some(&list.to_string()))?;
    let answers = serde_json::Deserializer::from_str(&told).into_iter::<Value>();
    let answers: Vec<Value> = answers.map(|answer| answer.expect("it is JSON")).collect();
    assert_eq!(answers.len(), questions.len());
    let wrong = questions.iter().zip(&answers).filter(|(question, answer)| answer["status"]["allowed"] != question.may);
    let wrong: Vec<String> = wrong
        .map(|(Question { user, verb, resource, namespace, may, .. }, _)| {
            format!("{user} {} {verb} {resource} in '{namespace}'", if *may { "may not" } else { "may" })
        })
        .collect();
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n")) }
}
