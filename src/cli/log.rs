//! relay's own log on a terminal: a word and a sentence, as all else that a person reads there.

use std::fmt;

use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use super::output::one_line;

/// Lines without their time and the place in the program that they are from.
pub(super) struct ForPeople;

impl<S, N> FormatEvent<S, N> for ForPeople
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut text = String::new();
        context.format_fields(Writer::new(&mut text), event)?;
        let word = if *event.metadata().level() == Level::ERROR { "error" } else { "warning" };
        writeln!(writer, "{word}: {}", one_line(&text))
    }
}

#[cfg(test)]
mod tests {
    use std::io::{self, Write};
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<u8>>>);

    impl Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_person_reads_a_word_and_a_sentence() {
        let kept = Kept::default();
        let writer = kept.clone();
        let log = tracing_subscriber::fmt()
            .with_writer(move || writer.clone())
            .with_ansi(true)
            .event_format(ForPeople)
            .finish();
        tracing::subscriber::with_default(log, || {
            tracing::warn!("acme/shop#3: no task for `claude`: not\nallowed");
            tracing::error!(error = "no room", "it stays");
        });
        let said = String::from_utf8(kept.0.lock().unwrap().clone()).unwrap();
        let lines: Vec<&str> = said.lines().collect();
        assert_eq!(lines[0], "warning: acme/shop#3: no task for `claude`: not allowed");
        assert!(lines[1].starts_with("error: it stays error=") && lines.len() == 2, "{said}");
    }
}
