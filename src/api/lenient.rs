//! Reads what a newer peer says: fields that are not known here are left out, at any depth, and
//! everything else is checked as ever.
//!
//! The types refuse unknown fields. A derived struct tells its deserialiser the fields it has, and
//! that is where the others are dropped.

use serde::Deserializer;
use serde::de::value::{MapDeserializer, SeqDeserializer};
use serde::de::{DeserializeOwned, IntoDeserializer, Visitor};
use serde_json::{Error, Value};

/// A body of a newer peer.
///
/// # Errors
/// As ever: what is missing or of another type.
pub fn body<T: DeserializeOwned>(value: Value) -> Result<T, Error> {
    T::deserialize(Lenient(value))
}

/// The parts of a newer client's query that a type knows.
pub fn query<T: DeserializeOwned>(query: &str) -> String {
    let mut known = Known(&[]);
    // It fails, after it has said what it wants.
    let _ = T::deserialize(&mut known);
    let named = |pair: &&str| {
        let name = pair.split('=').next().unwrap_or_default();
        known.0.contains(&name)
    };
    query.split('&').filter(named).collect::<Vec<_>>().join("&")
}

struct Lenient(Value);

impl<'de> IntoDeserializer<'de, Error> for Lenient {
    type Deserializer = Self;
    fn into_deserializer(self) -> Self {
        self
    }
}

impl<'de> Deserializer<'de> for Lenient {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.0 {
            Value::Object(fields) => {
                let fields = fields.into_iter().map(|(name, value)| (name, Self(value)));
                visitor.visit_map(MapDeserializer::new(fields))
            }
            Value::Array(items) => {
                visitor.visit_seq(SeqDeserializer::new(items.into_iter().map(Self)))
            }
            plain => plain.deserialize_any(visitor),
        }
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        known: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        match self.0 {
            Value::Object(mut fields) => {
                fields.retain(|name, _| known.contains(&name.as_str()));
                Self(Value::Object(fields)).deserialize_any(visitor)
            }
            other => Self(other).deserialize_any(visitor),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        if self.0.is_null() { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.0.deserialize_enum(name, variants, visitor)
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit
        unit_struct seq tuple tuple_struct map identifier ignored_any
    }
}

/// Only learns which fields a struct has.
struct Known(&'static [&'static str]);

impl<'de> Deserializer<'de> for &mut Known {
    type Error = serde::de::value::Error;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Self::Error> {
        Err(serde::de::Error::custom("a query is a struct"))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        known: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Self::Error> {
        self.0 = known;
        self.deserialize_any(visitor)
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit
        unit_struct option newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{DoorbellQuery, HeartbeatRequest, RecordRequest};
    use serde_json::json;

    const INSTANCE: &str = "00000000-0000-7000-8000-000000000001";

    #[test]
    fn fields_of_tomorrow_are_left_out_at_any_depth_and_mistakes_are_not() {
        let lease = json!({"task": "a/b#1", "epoch": 1, "tomorrow": {"deep": [1]}});
        let said = json!({"instance_id": INSTANCE, "leases": [lease], "tomorrow": true});
        assert!(serde_json::from_value::<HeartbeatRequest>(said.clone()).is_err());
        let read: HeartbeatRequest = body(said).expect("a heartbeat");
        assert_eq!(read.leases.len(), 1);
        assert!(body::<HeartbeatRequest>(json!({"tomorrow": true})).is_err(), "one is missing");
        let wrong = json!({"instance_id": INSTANCE, "leases": [{"task": 7, "epoch": 1}]});
        assert!(body::<HeartbeatRequest>(wrong).is_err(), "one is of another type");
    }

    #[test]
    fn an_enum_is_read_as_ever() {
        let effect = json!({"effect": "commented", "id": "7"});
        let said = json!({"worker_id": INSTANCE, "epoch": 2, "effect": effect, "tomorrow": null});
        let read: RecordRequest = body(said).expect("a record");
        assert_eq!(read.effect.kind(), "commented");
    }

    #[test]
    fn a_query_keeps_what_is_known() {
        let kept = query::<DoorbellQuery>("lanes=claude&tomorrow=1&free=2&later");
        assert_eq!(kept, "lanes=claude&free=2");
    }
}
