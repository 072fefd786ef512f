//! JSON log lines: the fields of an event and of its spans in one object, so that a query for a
//! volume is independent of whether the event or the span has that field.

use std::fmt;

use serde_json::{Map, Value};
use tracing::{
    Event, Subscriber,
    field::{Field, Visit},
};
use tracing_subscriber::{
    fmt::{FmtContext, FormatEvent, FormatFields, FormattedFields, format::Writer},
    registry::{LookupSpan, Scope},
};

/// Writes such lines; the fields of spans must be formatted as JSON.
pub(super) struct Flat;

impl<S, N> FormatEvent<S, N> for Flat
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
        let metadata = event.metadata();
        let mut line = Map::new();
        line.insert("timestamp".to_owned(), jiff::Timestamp::now().to_string().into());
        line.insert("level".to_owned(), metadata.level().as_str().into());
        line.insert("target".to_owned(), metadata.target().into());
        // The innermost wins.
        for span in context.event_scope().into_iter().flat_map(Scope::from_root) {
            let extensions = span.extensions();
            let fields = extensions.get::<FormattedFields<N>>().map(|fields| fields.fields.as_str());
            if let Some(Ok(Value::Object(fields))) = fields.map(serde_json::from_str) {
                line.extend(fields);
            }
        }
        event.record(&mut Fields(&mut line));
        writeln!(writer, "{}", Value::Object(line))
    }
}

struct Fields<'a>(&'a mut Map<String, Value>);

impl Fields<'_> {
    fn set(&mut self, field: &Field, value: impl Into<Value>) {
        self.0.insert(field.name().to_owned(), value.into());
    }
}

impl Visit for Fields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.set(field, format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.set(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.set(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.set(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.set(field, value);
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.set(field, value);
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{self, Write},
        sync::{Arc, Mutex},
    };

    use tracing::{info, info_span, warn};
    use tracing_subscriber::fmt::format::JsonFields;

    use super::*;

    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl Write for Written {
        fn write(&mut self, text: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(text)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_line_has_the_fields_of_its_spans_and_its_own_win() {
        let written = Written::default();
        let writer = written.clone();
        let log = tracing_subscriber::fmt().with_writer(move || writer.clone());
        let log = log.fmt_fields(JsonFields::new()).event_format(Flat).finish();
        tracing::subscriber::with_default(log, || {
            let span = info_span!("call", volume = tracing::field::Empty, case = "a \"b\"\n");
            let _entered = span.enter();
            span.record("volume", "pv-1");
            let _inner = info_span!("inner", attempt = 2).entered();
            info!("first");
            warn!(
                volume = "pv-2",
                ratio = 0.5,
                done = true,
                error = &io::Error::other("no") as &dyn std::error::Error,
                "second"
            );
        });
        let text = String::from_utf8(written.0.lock().unwrap().clone()).unwrap();
        let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let [first, second] = &lines[..] else { panic!("{text}") };
        assert_eq!((&first["message"], &first["level"]), (&"first".into(), &"INFO".into()));
        assert_eq!((&first["volume"], &first["case"]), (&"pv-1".into(), &"a \"b\"\n".into()));
        assert_eq!((&first["attempt"], &first["target"]), (&2.into(), &module_path!().into()));
        assert_eq!((&second["volume"], &second["level"]), (&"pv-2".into(), &"WARN".into()));
        assert_eq!(
            (&second["ratio"], &second["done"], &second["error"]),
            (&0.5.into(), &true.into(), &"no".into())
        );
        assert!(first["timestamp"].as_str().unwrap().parse::<jiff::Timestamp>().is_ok());
    }
}
