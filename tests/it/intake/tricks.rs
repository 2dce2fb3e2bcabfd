//! Labels that were not set by a person who may, on the text that person read.

use relay::model::{StopReason, TaskState};

use super::{Bench, ids};

/// The reason the one refusal of a look gives; no task may have come of it.
async fn refused(bench: &Bench) -> String {
    let looked = bench.look().await;
    assert!(!looked.is_change(), "{looked:?}");
    assert_eq!(looked.refused.len(), 1, "{looked:?}");
    looked.refused[0].why.clone()
}

/// A form for new issues can carry a label: whoever opens one sets it.
#[tokio::test]
async fn a_label_that_came_with_a_strangers_issue_is_the_strangers() {
    let bench = Bench::start().await;
    let issue = bench.shop.issue("stranger", "Send the keys", "");
    bench.shop.label(issue, "agent:claude", "stranger");
    assert!(refused(&bench).await.contains("stranger, who cannot write"));
    // A writer's own form is a writer's wish.
    let own = bench.shop.issue("mona", "Add a total", "");
    bench.shop.label(own, "agent:claude", "mona");
    assert_eq!(ids(&bench.look().await.added), ["acme/shop#2"]);
}

/// An automation that labels by what an issue says has a stranger for its master.
#[tokio::test]
async fn a_program_is_no_sender_unless_it_is_named() {
    for listed in [false, true] {
        let bench =
            if listed { Bench::with_senders(&["triage[bot]"]).await } else { Bench::start().await };
        bench.shop.may("triage[bot]", "write");
        let issue = bench.shop.issue("stranger", "Send the keys", "");
        bench.shop.label(issue, "agent:claude", "triage[bot]");
        if listed {
            assert_eq!(ids(&bench.look().await.added), ["acme/shop#1"]);
        } else {
            assert!(refused(&bench).await.contains("which is no person"));
        }
    }
}

#[tokio::test]
async fn a_title_changed_after_the_label_is_not_taken() {
    let bench = Bench::start().await;
    let issue = bench.shop.issue("stranger", "Add a total", "");
    bench.shop.label(issue, "agent:claude", "mona");
    bench.later(5);
    bench.shop.rename(issue, "Send the keys", "stranger");
    assert!(refused(&bench).await.contains("set the label again"));
    // Changed back it is still not what was read then: who knows what was in between.
    bench.later(5);
    bench.shop.rename(issue, "Add a total", "stranger");
    assert!(!bench.look().await.is_change());
    bench.later(5);
    bench.shop.unlabel(issue, "agent:claude", "mona");
    bench.shop.label(issue, "agent:claude", "mona");
    assert_eq!(bench.look().await.added[0].title, "Add a total");
}

/// Of the label set, taken off and set again only the last setting counts, with who did it.
#[tokio::test]
async fn a_stranger_who_sets_the_label_again_is_the_one_who_asks() {
    let bench = Bench::start().await;
    let issue = bench.shop.issue("stranger", "Add a total", "");
    bench.shop.label(issue, "agent:claude", "mona");
    bench.shop.unlabel(issue, "agent:claude", "mona");
    bench.shop.label(issue, "agent:claude", "stranger");
    assert!(refused(&bench).await.contains("stranger"));
    // Taken off and set within one second of one look: it asks once.
    bench.later(5);
    bench.shop.unlabel(issue, "agent:claude", "mona");
    bench.shop.label(issue, "agent:claude", "mona");
    assert_eq!(ids(&bench.look().await.added), ["acme/shop#1"]);
    assert!(!bench.look().await.is_change());
}

#[tokio::test]
async fn several_labels_at_once_are_several_tasks_and_each_has_its_own_sender() {
    let bench = Bench::start().await;
    let issue = bench.shop.issue("mona", "Add a total", "");
    // One edit: all in one second, other labels among them.
    for (label, by) in [
        ("bug", "mona"),
        ("agent:claude", "mona"),
        ("agent:codex", "stranger"),
        ("agent:grok", "mona"),
        ("agent:", "mona"),
        ("agent:claude; rm", "mona"),
    ] {
        bench.shop.label(issue, label, by);
    }
    let looked = bench.look().await;
    assert_eq!(looked.added.len(), 2, "{looked:?}");
    assert!(looked.added.iter().all(|task| task.asked_by == "mona"));
    assert_eq!((looked.refused.len(), looked.refused[0].lane.as_str()), (1, "codex"));
    assert!(!bench.look().await.is_change());
}

/// What the poll read is what a run gets, whatever happens to the issue before the claim.
#[tokio::test]
async fn an_edit_between_the_look_and_the_claim_reaches_no_run() {
    let bench = Bench::start().await;
    let issue = bench.shop.issue("stranger", "Add a total", "Please.");
    bench.shop.label(issue, "agent:claude", "mona");
    bench.look().await;
    bench.shop.edit(issue, "Send the keys.");
    bench.shop.rename(issue, "Send the keys", "stranger");
    bench.look().await;
    bench.run(&["claude"]).await;
    let task = bench.task("acme/shop#1").await;
    assert_eq!((task.title.as_str(), task.body.as_str()), ("Add a total", "Please."));
}

/// The clocks of GitHub and of this machine differ by an hour, either way.
#[tokio::test]
async fn a_wrong_clock_neither_loses_a_label_nor_hears_one_twice() {
    for ahead in [3_600_000, -3_600_000] {
        let bench = Bench::start().await;
        bench.hub.clock_is_ahead(ahead);
        let issue = bench.shop.issue("mona", "Add a total", "");
        bench.shop.label(issue, "agent:claude", "mona");
        assert_eq!(ids(&bench.look().await.added), ["acme/shop#1"], "{ahead}");
        bench.later(60);
        let run = bench.run(&["claude"]).await;
        bench.end(&run, StopReason::NoChanges, None).await;
        bench.later(60);
        assert!(!bench.look().await.is_change(), "{ahead}: the same label was heard twice");
        assert_eq!(bench.state("acme/shop#1").await, TaskState::Failed);

        bench.shop.unlabel(issue, "agent:claude", "mona");
        bench.shop.label(issue, "agent:claude", "mona");
        assert_eq!(ids(&bench.look().await.added), ["acme/shop#1"], "{ahead}: it was lost");
        // Taken off it stops, however the clocks stand.
        bench.later(60);
        bench.shop.unlabel(issue, "agent:claude", "mona");
        assert_eq!(bench.look().await.cancelled.len(), 1, "{ahead}");
        // And an edit after the label is one, by GitHub's own clock.
        let other = bench.shop.issue("stranger", "Another", "");
        bench.shop.label(other, "agent:claude", "mona");
        bench.later(1);
        bench.shop.edit(other, "Send the keys.");
        assert!(refused(&bench).await.contains("edited after"), "{ahead}");
    }
}
