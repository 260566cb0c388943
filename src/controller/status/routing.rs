//! The part of a status about the Service through which clients reach the leader.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use lictor_api::{ROUTED, condition, unknown, with_page};
use lictor_core::{Election, Family, Pod, Service, ServicePort, Situation, Slice, SliceContent, TargetPort};

use crate::controller::entry::{Entry, Obstacle, Route, slices};
use crate::controller::object::told_holder;
use crate::kubernetes::{Leftovers, ServiceDefect, foreign_slices};
use crate::wording::refusals;

/// The condition of the Service; `None` if the election names none. `leading`: the leader's pod, if it is known.
pub(crate) fn routed(
    entry: &Entry,
    group: &Election,
    leading: Option<&Pod>,
    known: &BTreeMap<String, Slice>,
) -> Option<Condition> {
    let name = entry.spec()?.service_name()?;
    let (namespace, generation) = (&entry.object.election().namespace, entry.object.generation());
    let told = |holds: bool, reason: &str, message: String| Some(condition(ROUTED, holds, reason, message, generation));
    let (service, leftovers) = match entry.routing.route() {
        Route::Off => return None,
        Route::Unknown { .. } => {
            let message = match entry.routing.failure() {
                Some(failure) => format!("the operator keeps trying: {}", failure.text()),
                None if entry.routing.is_read() => {
                    let message = format!("the Service {name} is about to be created");
                    return Some(unknown(ROUTED, "HandingOver", message, generation));
                }
                None => "the Service and its slices have not been read yet".into(),
            };
            return Some(unknown(ROUTED, "NotReadYet", message, generation));
        }
        Route::Unusable(obstacle) => {
            let (reason, message) = refused(obstacle, namespace, name);
            return told(false, reason, message);
        }
        Route::By(service) => (service, None),
        Route::Beside(service, leftovers) => (service, Some(leftovers)),
    };
    if let Some(failure) = group.route_failure() {
        if failure.is_forbidden() {
            let (reason, message) = refused(&Obstacle::Forbidden(failure.clone()), namespace, name);
            return told(false, reason, message);
        }
        return told(false, "WriteFails", format!("the operator keeps trying: {}", failure.text()));
    }
    if let Some(failure) = entry.service.failure() {
        let text = failure.text();
        return told(
            false,
            "ServiceNotWritten",
            format!("the operator keeps trying to write the Service {name}: {text}"),
        );
    }
    let all: Vec<&Slice> = slices([name], known).collect();
    let about_to_be_written = || {
        let message = format!("the slices of the Service {name} are about to be written");
        Some(unknown(ROUTED, "HandingOver", message, generation))
    };
    if let Some(leftovers) = leftovers {
        // R4.
        let named_by_all = |pod: &&Pod| leftovers.addresses.iter().all(|other| pod.addresses().any(|own| own == other));
        let agreed = leading.filter(named_by_all);
        if agreed.is_some_and(|pod| !name_only(pod, service, &all)) {
            return about_to_be_written();
        }
        let (reason, message) = left_over(leftovers, agreed.is_some(), namespace, name);
        return told(false, reason, message);
    }
    if let Situation::LedElsewhere(_) = group.situation() {
        return told(
            true,
            "LedElsewhere",
            format!("the Service {name} reaches no pod here: another cluster has the leader"),
        );
    }
    let Some((leads, holder, _)) = group.leader() else {
        // T1.
        let own = all.iter().filter(|slice| slice.content.election == entry.object.id().uid);
        if let Some(endpoint) = own.flat_map(|slice| &slice.content.endpoints).next() {
            let message = format!(
                "the Service {name} reaches {}, which is about to be removed: see the condition Elected",
                endpoint.pod
            );
            return told(false, "NoLeader", message);
        }
        return told(false, "NoLeader", format!("the Service {name} reaches no pod: see the condition Elected"));
    };
    let leader = told_holder(&entry.object, holder);
    // A new acting operator finds slices that another one wrote, and has nothing to do.
    let is_right = |slice: &Slice| {
        let SliceContent { election, term, endpoints, .. } = &slice.content;
        let named = endpoints.iter().all(|endpoint| endpoint.uid == holder.uid);
        *election == entry.object.id().uid && named && (endpoints.is_empty() || term == leads)
    };
    let shown: Vec<&Slice> = all.iter().copied().filter(|slice| slice.content.shows()).collect();
    if all.len() < service.families.len() || !all.into_iter().all(is_right) {
        return about_to_be_written();
    }
    let Some(slice) = shown.first() else {
        let families: Vec<&str> = service.families.iter().map(|family| family.word()).collect();
        let message = format!(
            "the Service {name} reaches no pod, because {leader} has no address of its families ({}): change \
             spec.ipFamilies of the Service",
            families.join(", ")
        );
        return told(false, "NoAddress", message);
    };
    if let Some(port) = lacking(service, slice) {
        return told(false, "NoSuchPort", format!("the Service {name} reaches {leader}, but not at {port}"));
    }
    let addresses: Vec<&str> =
        shown.iter().flat_map(|slice| &slice.content.endpoints).map(|endpoint| endpoint.address.as_str()).collect();
    let ready = if slice.content.endpoints.iter().all(|endpoint| endpoint.ready) { "" } else { ", which is not ready" };
    told(true, "Routed", format!("the Service {name} reaches {leader} at {}{ready}", addresses.join(" and ")))
}

/// Whether there is a slice for each family, and each names only this pod if the pod has an address of the family.
fn name_only(pod: &Pod, service: &Service, all: &[&Slice]) -> bool {
    service.families.iter().all(|family| {
        let address = pod.addresses().find(|address| Family::of(address) == *family);
        let content = all.iter().map(|slice| &slice.content).find(|content| content.family == *family);
        let named =
            |content: &SliceContent| content.endpoints.iter().map(|endpoint| endpoint.address.as_str()).eq(address);
        content.is_some_and(named)
    })
}

/// Why the Service can't be used, or not alone, if so: a reason, and what to do.
pub(crate) fn obstacle(entry: &Entry, conditions: &[Condition]) -> Option<(&'static str, String)> {
    let (namespace, service) = (&entry.object.election().namespace, entry.spec()?.service_name()?);
    let (reason, message) = match entry.routing.route() {
        Route::Unusable(obstacle) => refused(obstacle, namespace, service),
        // The reason that the status shows, of several.
        Route::Beside(_, leftovers) => [true, false]
            .into_iter()
            .map(|agree| left_over(leftovers, agree, namespace, service))
            .find(|(reason, _)| conditions.iter().any(|told| told.type_ == ROUTED && told.reason == *reason))?,
        Route::Off | Route::Unknown { .. } | Route::By(_) => return None,
    };
    Some((reason, with_page(&message, &ROUTED.to_lowercase())))
}

/// A port of a Service that its slice lacks, with what to do.
fn lacking(service: &Service, slice: &Slice) -> Option<String> {
    let has = |wanted: &ServicePort| {
        slice.content.ports.iter().any(|port| port.name == wanted.name && port.protocol == wanted.protocol)
    };
    let lacking = service.ports.iter().find(|port| !has(port))?;
    let TargetPort::Name(name) = &lacking.target else { return None };
    Some(format!(
        "the port {name:?} ({}): no container of the pod has a port of that name. Add the name there, or write the \
         port's number into targetPort of the Service",
        lacking.protocol
    ))
}

/// A reason, and what to do.
fn refused(obstacle: &Obstacle, namespace: &str, service: &str) -> (&'static str, String) {
    match obstacle {
        Obstacle::Forbidden(failure) => (
            "Forbidden",
            format!("{}: set routing.enabled in the values of lictor's chart, which grants it", failure.text()),
        ),
        Obstacle::Taken(older) => ("TakenByElection", refusals::service_taken(service, &older.to_string())),
        Obstacle::Missing => ("ServiceNotFound", refusals::service_missing(namespace, service)),
        Obstacle::NotCreated(failure) => (
            "ServiceNotWritten",
            format!("the operator keeps trying to create the Service {service}: {}", failure.text()),
        ),
        Obstacle::NotOwn => ("ServiceNotOwned", refusals::service_not_own(namespace, service)),
        Obstacle::Defect(ServiceDefect::HasSelector) => {
            ("ServiceHasSelector", refusals::service_has_selector(namespace, service))
        }
        Obstacle::Defect(ServiceDefect::ExternalName) => ("UnsupportedService", refusals::service_is_external(service)),
    }
}

/// The leftovers in a Service besides lictor's slices. `agree`: they name the leader, too. Returns a reason, and what to do.
fn left_over(leftovers: &Leftovers, agree: bool, namespace: &str, service: &str) -> (&'static str, String) {
    let Leftovers { slices, endpoints, .. } = leftovers;
    let delete_slices = format!("`kubectl -n {namespace} delete endpointslices -l '{}'`", foreign_slices(service));
    let delete_endpoints = format!("`kubectl -n {namespace} delete endpoints {service}`");
    let delete = if *endpoints { format!("{delete_endpoints}, then {delete_slices}") } else { delete_slices };
    if agree {
        return (
            "LeftoversNameLeader",
            format!(
                "the Service {service} reaches the leader by lictor's slices, but also by leftover endpoints, which \
                 follow no change of leader: delete them with {delete}"
            ),
        );
    }
    if *endpoints {
        (
            "LeftoverEndpoints",
            format!(
                "the Service {service} also reaches the addresses in the Endpoints {service}, because Kubernetes makes \
                 slices from them: delete them with {delete}"
            ),
        )
    } else {
        (
            "LeftoverSlices",
            format!(
                "the Service {service} also reaches the addresses in slices that lictor did not write: {}. Delete them \
                 with {delete}",
                slices.join(", ")
            ),
        )
    }
}
