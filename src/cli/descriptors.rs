//! How many files and sockets this process may have open at a time.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the soft `ulimit -n` to `wanted`, as far as the hard one lets it, and never lowers it.
/// Gives what it is then.
pub(super) fn raise(wanted: usize) -> usize {
    let limit = getrlimit(Resource::Nofile);
    let wanted = u64::try_from(wanted).unwrap_or(u64::MAX);
    let soft = limit.current.unwrap_or(u64::MAX);
    let raised = wanted.min(limit.maximum.unwrap_or(u64::MAX));
    let has = if raised > soft {
        let raise = Rlimit { current: Some(raised), maximum: limit.maximum };
        setrlimit(Resource::Nofile, raise).map_or(soft, |()| raised)
    } else {
        soft
    };
    usize::try_from(has).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_raised_as_far_as_it_may_be_and_never_lowered() {
        let limit = getrlimit(Resource::Nofile);
        let before = limit.current.map_or(usize::MAX, |soft| usize::try_from(soft).unwrap());
        let most = limit.maximum.map_or(usize::MAX, |hard| usize::try_from(hard).unwrap());
        assert_eq!(raise(1), before);
        let more = before.saturating_add(1).min(most);
        assert_eq!(raise(more), more);
        let now = getrlimit(Resource::Nofile).current;
        assert_eq!(now.map_or(usize::MAX, |soft| usize::try_from(soft).unwrap()), more);
    }
}
