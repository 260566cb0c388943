//! A login at Consul with a projected token that is for Consul alone, by an auth method of the type `jwt`: Consul checks it by the API
//! server's public keys. A token that the API server itself accepts is not sent.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use kube::config::Kubeconfig;
use lictor_testing::consul::{Consul, Kind};
use lictor_testing::kubernetes::eventually;
use serde_json::{Value, json};

use super::member::{Member, sessions};

const RULES: &str = r#"
    key_prefix "login-" { policy = "write" }
    session_prefix "lictor-" { policy = "write" }
    node_prefix "lictor-" { policy = "write" }
    agent_prefix "" { policy = "read" }"#;

#[tokio::test(flavor = "multi_thread")]
async fn lictor_logs_in_with_its_pods_token_logs_in_again_when_it_is_revoked_and_logs_out_at_its_end() {
    let consul = Consul::start(Kind::Three);
    let file = std::env::temp_dir().join(format!("lictor-token-{}", std::process::id()));
    let login = json!({"authMethodName": "kubernetes", "tokenPath": file});
    let fields = json!({"login": login, "tls": {
        "caSecretRef": {"name": "ca"}, "certSecretRef": {"name": "client"}, "serverName": "server.dc1.consul",
    }});
    let member = Member::new("login", "west", consul.server(1).address(), fields).await;
    make_secrets(&consul, &member);
    let kubectl = |arguments: &[&str]| member.lab.try_kubectl(arguments, None).expect("kubectl succeeds");
    let namespace = member.lab.namespace.as_str();
    let keys = "--clusterrole=system:service-account-issuer-discovery";
    kubectl(&["create", "clusterrolebinding", namespace, keys, "--group=system:unauthenticated"]);
    std::fs::write(&file, kubectl(&["create", "token", "default"])).expect("a file can be written");
    make_auth_method(&consul, &member);

    let mut operator = member.operator(&[]);
    member.lab.ready_pods(&["a", "b"]).await;
    member.elect(json!({})).await;
    let message = member.wait_class("False", "TokenForApiServer").await;
    assert!(message.contains("mount a projected token"), "{message}");
    assert_eq!(tokens(&consul).await, Vec::<String>::new());

    std::fs::write(&file, kubectl(&["create", "token", "default", "--audience=consul"]))
        .expect("a file can be written");
    let leader = member.lab.wait_any_leader().await;
    member.wait_class("True", "Answers").await;
    let session = sessions(&consul, &member).await;
    let [token] = tokens(&consul).await.try_into().expect("one login");

    consul.cli(&["acl", "token", "delete", &format!("-accessor-id={token}")]);
    let again = eventually("it has logged in again", || async {
        match tokens(&consul).await.as_slice() {
            [again] if *again != token => Ok(again.clone()),
            tokens => Err(format!("{tokens:?}")),
        }
    })
    .await;
    assert_ne!(again, token);
    member.wait_class("True", "Answers").await;
    assert_eq!(member.lab.wait_any_leader().await, leader);
    assert_eq!(sessions(&consul, &member).await, session, "sessions don't depend on tokens");

    operator.stop().await;
    assert_eq!(tokens(&consul).await, Vec::<String>::new(), "{}", operator.log());
    let _ = std::fs::remove_file(&file);
}

/// Creates the Secrets with the certificates that the servers require.
fn make_secrets(consul: &Consul, member: &Member) {
    let path = |name: &str| consul.variable(name).expect("three servers have certificates");
    let from = |key: &str, name: &str| format!("--from-file={key}={}", path(name));
    let ca = from("ca.crt", "CACERT");
    let (certificate, key) = (from("tls.crt", "CLIENT_CERT"), from("tls.key", "CLIENT_KEY"));
    for arguments in [
        vec!["create", "secret", "generic", "ca", ca.as_str()],
        vec!["create", "secret", "generic", "client", certificate.as_str(), key.as_str()],
    ] {
        member.lab.try_kubectl(&arguments, None).expect("a Secret can be made");
    }
}

fn make_auth_method(consul: &Consul, member: &Member) {
    let kubeconfig = Kubeconfig::read_from(member.lab.cluster.kubeconfig()).expect("the kubeconfig can be read");
    let cluster = kubeconfig.clusters[0].cluster.clone().expect("it names a cluster");
    let ca = match (cluster.certificate_authority_data, cluster.certificate_authority) {
        (Some(data), _) => String::from_utf8(STANDARD.decode(data).expect("base 64")).expect("PEM"),
        (None, path) => std::fs::read_to_string(path.expect("it names a CA")).expect("the CA can be read"),
    };
    let server = cluster.server.expect("it names a server");
    let claims = json!({"/kubernetes.io/namespace": "namespace", "/kubernetes.io/serviceaccount/name": "name"});
    let keys = format!("{}/openid/v1/jwks", server.trim_end_matches('/'));
    let config = json!({"JWKSURL": keys, "JWKSCACert": ca, "BoundAudiences": ["consul"], "ClaimMappings": claims});
    consul.cli(&["acl", "auth-method", "create", "-type=jwt", "-name=kubernetes", &format!("-config={config}")]);
    consul.cli(&["acl", "policy", "create", "-name=lictor", &format!("-rules={RULES}")]);
    consul.cli(&["acl", "role", "create", "-name=lictor", "-policy-name=lictor"]);
    let selector = format!("-selector=value.namespace=={:?} and value.name==default", member.lab.namespace);
    let binding = ["acl", "binding-rule", "create", "-method=kubernetes", "-bind-type=role", "-bind-name=lictor"];
    consul.cli(&[&binding[..], &[selector.as_str()]].concat());
}

/// Returns the tokens from logins.
async fn tokens(consul: &Consul) -> Vec<String> {
    let answer = consul.api().get("/v1/acl/tokens?authmethod=kubernetes").await.expect("Consul answers").ok();
    let id = |token: &Value| token["AccessorID"].as_str().unwrap_or_default().to_owned();
    answer.as_array().expect("a list").iter().map(id).collect()
}
