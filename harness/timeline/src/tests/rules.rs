//! Calls out of order: judged by the times of calls, not by the order in which their records arrive.

use claimcheck_csi::{Code, tap::TapRecord};
use claimcheck_model::{CsiMethod, Event, OUT_OF_SERVICE, Rule, Stamp};
use k8s_openapi::api::{core::v1::Node, storage::v1::CSIDriver};
use serde_json::json;

use super::{
    super::{Tap, Timeline},
    call, ok, seen, target, with_volume,
};
use crate::evidence::{Change, Observation};

#[test]
fn rules_are_judged_by_time_not_by_arrival() {
    let broken_of = |mut timeline: Timeline, calls: &[Observation]| -> Vec<Rule> {
        let mut events: Vec<Event> = calls.iter().flat_map(|call| timeline.feed(call)).collect();
        events.extend(timeline.finish());
        let rules = events
            .into_iter()
            .filter_map(|e| if let Event::Violation { rule, .. } = e { Some(rule) } else { None });
        rules.collect()
    };
    let broken = |calls: &[Observation]| broken_of(Timeline::new(Tap::Present), calls);
    let staged = ok(CsiMethod::NodeStageVolume, "n1", "", 1, 2);
    let published = ok(CsiMethod::NodePublishVolume, "n1", &target("p1"), 3, 4);
    let unpublished = ok(CsiMethod::NodeUnpublishVolume, "n1", &target("p1"), 5, 6);
    let unstaged = ok(CsiMethod::NodeUnstageVolume, "n1", "", 7, 8);
    let detached = ok(CsiMethod::ControllerUnpublishVolume, "n1", "", 9, 10);
    let early = ok(CsiMethod::ControllerUnpublishVolume, "n1", "", 6, 7);
    let [s, p, up, us] = [&staged, &published, &unpublished, &unstaged].map(Clone::clone);

    // The record of the unstage comes from another process, after that of the later detach.
    assert_eq!(broken(&[s.clone(), p.clone(), up.clone(), detached, us.clone()]), []);
    assert_eq!(broken(&[s.clone(), p.clone(), up.clone(), early, us.clone()]), [Rule::DetachBeforeUnstage]);
    assert_eq!(broken(&[s.clone(), p.clone(), us.clone(), up.clone()]), [Rule::UnstageBeforeUnpublish]);
    assert_eq!(broken(&[s.clone(), s.clone()]), [Rule::StageTwice]);
    assert_eq!(broken(&[s.clone(), p.clone(), p.clone()]), [Rule::PublishTwice]);
    let twice = [s.clone(), s.clone(), p.clone(), p.clone()];
    let by_kubelets = Timeline::new(Tap::Present).with_repeats_of(&[Rule::StageTwice]);
    assert_eq!(broken_of(by_kubelets, &twice), [Rule::PublishTwice], "what may be repeated is no violation");
    let driver = json!({ "metadata": { "name": "d", "uid": "du1" }, "spec": { "requiresRepublish": true } });
    let driver = seen::<CSIDriver>(0, false, driver);
    assert_eq!(broken(&[driver, s.clone(), p.clone(), p.clone()]), [], "the driver requires it");
    assert_eq!(broken(&[s.clone(), p.clone(), up, us.clone(), p.clone()]), [Rule::PublishBeforeStage]);

    // A restarted node agent is another process, which completes what it finds; but once.
    let restarted = |call: &Observation| {
        let Observation::Rpc(rpc) = call else { panic!("{call:?}") };
        let id = claimcheck_csi::tap::CallId { pid: rpc.id.pid + 1, ..rpc.id };
        Observation::from(TapRecord { id, ..(**rpc).clone() })
    };
    let again = [s.clone(), p.clone(), restarted(&s), restarted(&p)];
    assert_eq!(broken(&again), []);
    assert_eq!(broken(&[&again[..], &[restarted(&p)]].concat()), [Rule::PublishTwice]);

    // An inline ephemeral volume is never staged.
    let volume = format!("csi-{}", "0a".repeat(32));
    let own =
        with_volume(&volume, call(CsiMethod::NodePublishVolume, "n1", &target("p2"), 3, Some((4, Code::Ok))));
    let deleted = TapRecord { method: CsiMethod::NodeUnpublishVolume.into(), ..own.clone() };
    assert_eq!(broken(&[s.clone(), us.clone(), own.into(), deleted.into()]), []);

    // A node that is known to be down is not waited for.
    let down = json!({"metadata": {"name": "n1"}, "spec": {"taints": [{"key": OUT_OF_SERVICE, "effect": "NoExecute"}]}});
    let down: Node = serde_json::from_value(down).unwrap();
    let down =
        Observation::Watch(Box::new(Change { at: Stamp::default(), object: down.into(), deleted: false }));
    let early = ok(CsiMethod::ControllerUnpublishVolume, "n1", "", 6, 7);
    assert_eq!(broken(&[s.clone(), p.clone(), down, early]), []);

    // A failed call may have undone it, so it may be repeated; but not twice.
    let failed = |method, target: &str| -> Observation {
        call(method, "n1", target, 7, Some((8, Code::DeadlineExceeded))).into()
    };
    let unstaging = failed(CsiMethod::NodeUnstageVolume, "");
    assert_eq!(broken(&[s.clone(), unstaging.clone(), s.clone()]), []);
    assert_eq!(broken(&[s.clone(), unstaging, s.clone(), s.clone()]), [Rule::StageTwice]);
    let unpublishing = |pod: &str| failed(CsiMethod::NodeUnpublishVolume, &target(pod));
    assert_eq!(broken(&[s.clone(), p.clone(), unpublishing("p1"), p.clone()]), []);
    assert_eq!(broken(&[s, p.clone(), unpublishing("p2"), p]), [Rule::PublishTwice]);
}
