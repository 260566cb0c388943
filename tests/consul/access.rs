//! Certificates and tokens: three servers that require both.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use lictor_consul::{Agent, Bound, Client, Error, NewSession, Settings, Transaction, TxnOp};
use lictor_testing::consul::{Consul, Kind};

use super::ours;

const NOBODY: &str = "00000000-0000-0000-0000-00000000dead";

#[tokio::test]
async fn certificates() {
    let consul = Consul::start(Kind::Three);
    let knows = async |change: &dyn Fn(&mut Settings)| {
        let mut settings = ours::settings(&consul, consul.server(1));
        change(&mut settings);
        Client::new(&settings).unwrap().leader_known().await
    };
    assert_eq!(knows(&|_| {}).await, Ok(true));
    assert_eq!(knows(&|s| s.server_name = Some("server.dc1.consul".into())).await, Ok(true));

    // This is another server than the intended one, so nothing is sent to it.
    for change in [(|s| s.server_name = Some("server.dc2.consul".into())) as fn(&mut Settings), |s| s.ca = None] {
        let error = knows(&change).await.unwrap_err();
        assert!(matches!(&error, Error::Unreachable(text) if text.contains("certificate")), "{error:?}");
    }
    assert!(knows(&|s| s.identity = None).await.is_err());
}

#[tokio::test]
async fn tokens() {
    let consul = Consul::start(Kind::Three);
    let admin = ours::client(&consul);
    let client = Client::new(&ours::settings(&consul, consul.server(1))).unwrap();
    admin.register_node("lictor-west", "127.0.0.1", &BTreeMap::new()).await.unwrap();
    let set = |key: &str| [TxnOp::KvSet { key: key.into(), value: b"x".to_vec(), flags: 0 }];
    assert!(matches!(admin.transact(&set("services/a")).await, Transaction::Applied(_)));
    let session = NewSession {
        name: "lictor/west/0".into(),
        bound: Bound::Node("lictor-west".into()),
        ttl: Duration::from_secs(10),
        lock_delay: Duration::from_secs(1),
    };

    // Without a token, nothing is visible, and the error of a change names the missing rule.
    assert_eq!(client.agent_self().await, Ok(Agent::default()));
    assert_eq!(client.list("services/").await.unwrap().1, []);
    assert_eq!(client.sessions_of_node("lictor-west").await, Ok(vec![]));
    let forbidden = |error: &Error, rule: &str| {
        assert!(matches!(error, Error::Forbidden(text) if text.contains(rule)), "{error:?} lacks {rule}");
    };
    forbidden(&client.read_key("services/a").await.unwrap_err(), r#"key "services/a" { policy = "read" }"#);
    forbidden(&client.create_session(&session).await.unwrap_err(), r#"session "lictor-west" { policy = "write" }"#);
    let registered = client.register_node("lictor-east", "127.0.0.1", &BTreeMap::new()).await;
    forbidden(&registered.unwrap_err(), r#"node "lictor-east" { policy = "write" }"#);
    let Transaction::Failed(error) = client.transact(&set("services/a")).await else { panic!("it was allowed") };
    forbidden(&error, r#"key_prefix "services/a" { policy = "write" }"#);

    // A token that does not exist.
    let mut rejections = client.rejections();
    client.set_token(Some(NOBODY)).unwrap();
    assert!(!rejections.has_changed().unwrap());
    assert!(matches!(client.read_key("services/a").await, Err(Error::UnknownToken(_))));
    assert!(matches!(client.transact(&set("services/a")).await, Transaction::Failed(Error::UnknownToken(_))));
    assert!(matches!(client.renew("x").await, lictor_consul::Renewal::Failed(Error::UnknownToken(_))));
    assert_eq!(*rejections.borrow_and_update(), 3);
    client.logout(NOBODY).await.expect("it is gone already");

    // The documented rights are enough.
    let policy = r#"
        key_prefix "services/" { policy = "write" }
        session "lictor-west" { policy = "write" }
        node "lictor-west" { policy = "write" }
    "#;
    consul.cli(&["acl", "policy", "create", "-name=lictor", &format!("-rules={policy}")]);
    let token = consul.cli(&["acl", "token", "create", "-policy-name=lictor", "-format=json"]);
    let token: serde_json::Value = serde_json::from_str(&token).unwrap();
    client.set_token(token["SecretID"].as_str()).unwrap();
    client.register_node("lictor-west", "127.0.0.1", &BTreeMap::new()).await.unwrap();
    let id = client.create_session(&session).await.unwrap();
    assert_eq!(client.sessions_of_node("lictor-west").await.unwrap().len(), 1);
    assert!(matches!(client.transact(&set("services/b")).await, Transaction::Applied(_)));
    let Transaction::Failed(error) = client.transact(&set("other")).await else { panic!("it was allowed") };
    forbidden(&error, r#"key_prefix "other" { policy = "write" }"#);
    client.destroy(&id).await.unwrap();
    client.destroy(&id).await.expect("it is gone already");
}

/// A pod's token, signed with a key that the auth method knows.
#[tokio::test]
async fn logins() {
    let consul = Consul::start(Kind::Three);
    let directory = std::env::temp_dir().join(format!("lictor-login-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let key = directory.join("key.pem");
    let openssl = |arguments: &[&str]| {
        let output = Command::new("openssl").current_dir(&directory).args(arguments).output().expect("openssl runs");
        assert!(output.status.success(), "openssl {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        output.stdout
    };
    openssl(&["genrsa", "-out", key.to_str().unwrap(), "2048"]);
    let public = String::from_utf8(openssl(&["rsa", "-in", key.to_str().unwrap(), "-pubout"])).unwrap();
    let config = serde_json::json!({"JWTValidationPubKeys": [public], "BoundIssuer": "test",
        "ClaimMappings": {"sub": "who"}});
    let config = format!("-config={config}");
    let method = ["acl", "auth-method", "create", "-type=jwt", "-name=pods", "-max-token-ttl=10m", &config];
    consul.cli(&method);
    consul.cli(&["acl", "policy", "create", "-name=reader", "-rules=key_prefix \"\" { policy = \"read\" }"]);
    consul.cli(&["acl", "role", "create", "-name=lictor", "-policy-name=reader"]);
    let binding = ["-method=pods", "-bind-type=role", "-bind-name=lictor", "-selector=value.who==lictor"];
    consul.cli(&[&["acl", "binding-rule", "create"], &binding[..]].concat());
    let bearer = |who: &str| {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
        let claims = serde_json::json!({"iss": "test", "sub": who, "iat": now, "exp": now + 600});
        let signed = format!(
            "{}.{}",
            URL_SAFE_NO_PAD.encode(r#"{"alg":"RS256","typ":"JWT"}"#),
            URL_SAFE_NO_PAD.encode(claims.to_string())
        );
        std::fs::write(directory.join("signed"), &signed).unwrap();
        let signature = openssl(&["dgst", "-sha256", "-sign", key.to_str().unwrap(), "signed"]);
        format!("{signed}.{}\n", URL_SAFE_NO_PAD.encode(signature))
    };

    let client = Client::new(&ours::settings(&consul, consul.server(1))).unwrap();
    let login = client.login("pods", &bearer("lictor")).await.unwrap();
    assert_eq!(login.lifetime, Some(Duration::from_secs(600)));
    assert!(client.read_key("a").await.is_err());
    client.set_token(Some(&login.secret)).unwrap();
    assert_eq!(client.read_key("a").await, Ok(None));
    client.logout(&login.secret).await.unwrap();
    client.logout(&login.secret).await.expect("that is done already");
    assert!(matches!(client.read_key("a").await, Err(Error::UnknownToken(_))));

    let somebody = client.login("pods", &bearer("somebody")).await.unwrap_err();
    assert!(matches!(&somebody, Error::Forbidden(text) if text.contains("binding rule of pods")), "{somebody:?}");
    assert!(client.login("pods", "no token").await.is_err());
    assert!(client.login("nobodys", &bearer("lictor")).await.is_err());
    std::fs::remove_dir_all(&directory).unwrap();
}
