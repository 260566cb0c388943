//! What a class lets elections do beyond their own pods and their own lock.

use lictor_core::fits;

use super::{Class, Refusal};
use crate::{AllowedWorkloads, ConsulService, Workload};

impl Class<'_> {
    /// Refuses a service whose name the class does not allow, because registering a name yields a share of its callers.
    pub(super) fn check_service(
        &self,
        service: &ConsulService,
        expand: impl Fn(&str) -> String,
    ) -> Result<(), Refusal> {
        let (service, name) = (&service.name, &self.name);
        let message = match self.service_pattern.map(expand) {
            Some(pattern) if fits(&pattern, service) => return Ok(()),
            Some(pattern) => format!(
                "spec.sharedStore.consulService.name is {service:?}, and the class {name:?} lets elections register only \
                 {pattern:?} here: write such a name"
            ),
            None => format!(
                "spec.sharedStore.consulService.name is {service:?}, and the class {name:?} lets elections register no service: \
                 leave spec.sharedStore.consulService out, or let an administrator set the class's spec.consul.servicePattern, for \
                 example to \"{{namespace}}-{{name}}\""
            ),
        };
        Err(Refusal { reason: "ServiceNotAllowed", message })
    }

    /// Refuses workloads that the class does not allow. Through them, anyone who may create elections stops and starts
    /// workloads that they may not change directly, and with a jobTemplate runs pods.
    pub(super) fn check_workloads(&self, workloads: &[Workload]) -> Result<(), Refusal> {
        let refused = match self.allowed_workloads {
            AllowedWorkloads::All => None,
            AllowedWorkloads::Existing => workloads.iter().find(|workload| workload.job_template.is_some()),
            AllowedWorkloads::None => workloads.first(),
        };
        let Some(Workload { kind, name, job_template, .. }) = refused else { return Ok(()) };
        let template = if job_template.is_some() { " with a jobTemplate" } else { "" };
        let allows = match self.allowed_workloads {
            AllowedWorkloads::Existing => "only workloads that exist",
            _ => "no workloads",
        };
        Err(Refusal {
            reason: "WorkloadsNotAllowed",
            message: format!(
                "spec.workloads names {kind:?}/{name}{template}, and the class {:?} allows {allows}: take it out, or \
                 let an administrator change the class's spec.allowedWorkloads",
                self.name
            ),
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::{Classes, DEFAULT_CONTROLLER, Resolved, resolve};

    fn read(fields: &Value, class: &Value) -> Result<Resolved, (&'static str, String)> {
        let class = json!({
            "apiVersion": "lictor.dev/v1alpha1", "kind": "ElectionClass", "metadata": {"name": "a"}, "spec": class,
        });
        let classes = Classes::from([("a".to_owned(), serde_json::from_value(class).unwrap())]);
        let mut election = json!({
            "apiVersion": "lictor.dev/v1alpha1", "kind": "LeaderElection", "metadata": {"namespace": "shop", "name": "web"},
            "spec": {"className": "a", "selector": {"matchLabels": {"app": "web"}}},
        });
        for (name, value) in fields.as_object().unwrap() {
            election["spec"][name] = value.clone();
        }
        resolve(&serde_json::from_value(election).unwrap(), &classes, DEFAULT_CONTROLLER)
            .unwrap()
            .map_err(|refusal| (refusal.reason, refusal.message))
    }

    #[test]
    fn a_service_in_consul_has_a_name_that_the_class_allows() {
        let register = |name: &str, pattern: Option<&str>| {
            let consul = json!({"address": "http://consul:8500", "clusterName": "west", "servicePattern": pattern});
            read(&json!({"sharedStore": {"consulService": {"name": name, "port": 80}}}), &json!({"consul": consul}))
                .map(|read| {
                    assert_eq!(read.consul_service.unwrap().name, name);
                })
        };
        let refused = |name, pattern| register(name, pattern).expect_err(name);
        let (reason, message) = refused("web", None);
        assert_eq!(reason, "ServiceNotAllowed");
        assert!(message.contains("no service") && message.contains("spec.consul.servicePattern"), "{message}");
        let (reason, message) = refused("bank-web", Some("{namespace}-{name}"));
        assert_eq!(reason, "ServiceNotAllowed");
        assert!(message.contains("\"shop-web\" here"), "{message}");
        assert_eq!(register("shop-web", Some("{namespace}-{name}")), Ok(()));
        assert_eq!(refused("bank-x", Some("{namespace}-*")).0, "ServiceNotAllowed");
        assert_eq!(register("shop-x", Some("{namespace}-*")), Ok(()));
        assert_eq!(register("web", Some("*")), Ok(()));
        assert_eq!(
            read(&json!({}), &json!({"consul": {"address": "http://consul:8500", "clusterName": "west"}})).map(drop),
            Ok(())
        );
    }

    #[test]
    fn a_class_can_switch_workloads_off_or_templates_of_jobs_alone() {
        let deployment = json!({"kind": "Deployment", "name": "importer"});
        let made = json!({"kind": "Job", "name": "settle", "jobTemplate": {"spec": {"template": {}}}});
        let with = |workloads: &[&Value], allowed: Value| {
            let class = json!({"lease": {}, "allowedWorkloads": allowed});
            let class = if class["allowedWorkloads"].is_null() { json!({"lease": {}}) } else { class };
            read(&json!({"workloads": workloads}), &class).map(|read| read.workloads.len() + read.jobs.len())
        };
        for all in [json!(null), json!("All")] {
            assert_eq!(with(&[&deployment, &made], all), Ok(2));
        }
        assert_eq!(with(&[&deployment], json!("Existing")), Ok(1));
        let (reason, message) = with(&[&deployment, &made], json!("Existing")).expect_err("a template");
        assert_eq!(reason, "WorkloadsNotAllowed");
        assert!(message.contains("Job/settle with a jobTemplate") && message.contains("that exist"), "{message}");
        assert_eq!(with(&[], json!("None")), Ok(0));
        let (reason, message) = with(&[&deployment], json!("None")).expect_err("a workload");
        assert_eq!(reason, "WorkloadsNotAllowed");
        assert!(message.contains("Deployment/importer, and") && message.contains("spec.allowedWorkloads"), "{message}");
    }
}
