//! The hosts of the vendors themselves: where a lane's model and its login are.

/// A lane and the hosts without which its program does nothing. What only counts or updates is not
/// here: the switches of a run turn it off.
const VENDORS: &[(&str, &[&str])] = &[
    ("claude", &["api.anthropic.com", "claude.ai", "platform.claude.com", "console.anthropic.com"]),
    ("codex", &["chatgpt.com", "api.openai.com", "auth.openai.com"]),
    ("grok", &["api.x.ai", "cli-chat-proxy.grok.com", "auth.x.ai", "accounts.x.ai"]),
];

/// The hosts of the vendor behind a lane. A program of the operator's has none.
#[must_use]
pub fn vendor_hosts(lane: &str) -> &'static [&'static str] {
    VENDORS.iter().find(|(name, _)| *name == lane).map_or(&[], |(_, hosts)| hosts)
}

#[cfg(test)]
mod tests {
    use super::super::allow::Host;
    use super::*;

    #[test]
    fn each_vendor_has_its_own_hosts_and_a_program_none() {
        assert!(vendor_hosts("claude").contains(&"api.anthropic.com"));
        assert!(vendor_hosts("codex").contains(&"chatgpt.com"));
        assert!(vendor_hosts("grok").contains(&"api.x.ai"));
        assert_eq!(vendor_hosts("process:claude"), [""; 0]);
        for (_, hosts) in VENDORS {
            for host in *hosts {
                assert_eq!(Host::parse(host), Some(Host::Name((*host).to_owned())), "{host}");
            }
        }
    }
}
