//! How types look as JSON, for interface descriptions: JSON Schema 2020-12, which is that of OpenAPI 3.1.
//!
//! A type that crosses the wire and its schema are one declaration, [`message!`](crate::message), so neither can have a
//! member that the other lacks. Closed sets of words and types that are text have their schema from the macros of
//! [`text`](crate::text).

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::num::NonZeroU32;

use serde::{Deserialize, Deserializer};
use serde_json::Map;

#[doc(hidden)]
pub use serde_json::{Value, json};

/// Schemas that have a name, by it: what `components/schemas` of a document holds.
pub type SharedSchemas = BTreeMap<&'static str, Value>;

/// Writes a schema; [`of`] is one for every type.
pub type SchemaOf = fn(&mut SharedSchemas) -> Value;

/// A type that knows how it looks as JSON.
pub trait Schema {
    /// The name under which documents share it. Empty: it is written out where it is used.
    const NAME: &'static str = "";

    /// Whether a request may leave out a member of this type.
    const MAY_BE_ABSENT: bool = false;

    /// The schema itself. Named schemas that it refers to are added to `shared`.
    fn schema(shared: &mut SharedSchemas) -> Value;

    /// As [`of`], for a member that is absent where it has no value, and never null.
    fn if_present(shared: &mut SharedSchemas) -> Value {
        of::<Self>(shared)
    }

    /// Whether a sparse record leaves out the value because it is unknown.
    fn is_absent(&self) -> bool {
        false
    }
}

/// The schema of a type where it is used: a reference where it has a name.
pub fn of<T: Schema + ?Sized>(shared: &mut SharedSchemas) -> Value {
    if T::NAME.is_empty() {
        return T::schema(shared);
    }
    if !shared.contains_key(T::NAME) {
        shared.insert(T::NAME, Value::Null);
        let schema = T::schema(shared);
        shared.insert(T::NAME, schema);
    }
    json!({ "$ref": format!("#/components/schemas/{}", T::NAME) })
}

/// For `skip_serializing_if` of a sparse record.
pub fn is_absent(value: &impl Schema) -> bool {
    value.is_absent()
}

macro_rules! plain {
    ($($type:ty = $schema:tt;)+) => {
        $(impl Schema for $type {
            fn schema(_: &mut SharedSchemas) -> Value {
                json!($schema)
            }
        })+
    };
}

plain! {
    str = { "type": "string" };
    String = { "type": "string" };
    bool = { "type": "boolean" };
    i64 = { "type": "integer", "format": "int64" };
    u16 = { "type": "integer", "minimum": 0 };
    u32 = { "type": "integer", "minimum": 0 };
    u64 = { "type": "integer", "minimum": 0 };
    IpAddr = { "type": "string" };
    NonZeroU32 = { "type": "integer", "minimum": 1 };
    Value = { "type": "object" };
}

impl<T: Schema> Schema for Vec<T> {
    fn schema(shared: &mut SharedSchemas) -> Value {
        json!({ "type": "array", "items": of::<T>(shared) })
    }
}

impl<T: Schema> Schema for Option<T> {
    const MAY_BE_ABSENT: bool = true;

    fn schema(shared: &mut SharedSchemas) -> Value {
        or_null(of::<T>(shared))
    }

    fn if_present(shared: &mut SharedSchemas) -> Value {
        of::<T>(shared)
    }

    fn is_absent(&self) -> bool {
        self.is_none()
    }
}

/// The schema of a value or null.
fn or_null(mut schema: Value) -> Value {
    let Some(Value::String(kind)) = schema.get("type").cloned() else {
        return json!({ "anyOf": [schema, { "type": "null" }] });
    };
    set(&mut schema, "type", json!([kind, "null"]));
    if let Some(words) = schema.get_mut("enum").and_then(Value::as_array_mut) {
        words.push(Value::Null);
    }
    schema
}

/// A member of a change: if it is absent, nothing changes; null is refused. Use it with `#[serde(default)]`.
#[derive(Clone, Debug)]
pub struct Given<T>(pub Option<T>);

impl<T> Default for Given<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Given<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        T::deserialize(deserializer).map(|value| Self(Some(value)))
    }
}

impl<T: Schema> Schema for Given<T> {
    const MAY_BE_ABSENT: bool = true;

    fn schema(shared: &mut SharedSchemas) -> Value {
        of::<T>(shared)
    }
}

/// Which members of a record are always there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Members {
    /// Members of an answer: all are present; an unknown one is null.
    All,
    /// Of a request: those that have neither an empty value nor a default.
    Needed,
    /// Members of a sparse record: an unknown one is absent.
    Known,
}

/// The schema of a record while it is put together.
#[doc(hidden)]
#[derive(Debug)]
pub struct RecordSchema {
    members: Members,
    required: Vec<Value>,
    properties: Map<String, Value>,
}

impl RecordSchema {
    /// Without members yet.
    pub fn new(members: Members) -> Self {
        Self { members, required: Vec::new(), properties: Map::new() }
    }

    /// Adds a member. `more` is added to its schema; as text it says `flatten` or `optional` (see [`message!`](crate::message)).
    pub fn member<T: Schema>(&mut self, shared: &mut SharedSchemas, name: &str, what: &str, more: Option<&Value>) {
        let flag = more.and_then(Value::as_str).unwrap_or_default();
        if flag == "flatten" {
            let mut inner = T::schema(shared);
            let mut part = |name: &str| inner.get_mut(name).map(Value::take).unwrap_or_default();
            self.required.extend(part("required").as_array().cloned().unwrap_or_default());
            self.properties.extend(part("properties").as_object().cloned().unwrap_or_default());
            return;
        }
        let is_left_out = flag == "optional" || self.members == Members::Known;
        let mut schema = if is_left_out { T::if_present(shared) } else { of::<T>(shared) };
        if !what.is_empty() {
            set(&mut schema, "description", what.into());
        }
        for (name, value) in more.and_then(Value::as_object).into_iter().flatten() {
            set(&mut schema, name, value.clone());
        }
        let may_be_absent = T::MAY_BE_ABSENT && self.members != Members::All || flag == "optional";
        if !may_be_absent && schema.get("default").is_none() {
            self.required.push(name.into());
        }
        self.properties.insert(name.to_owned(), schema);
    }

    /// The schema.
    pub fn finish(mut self, description: &str) -> Value {
        self.required.sort_by(|one, other| one.as_str().cmp(&other.as_str()));
        let mut schema = json!({ "type": "object", "description": description, "properties": self.properties });
        if !self.required.is_empty() {
            set(&mut schema, "required", self.required.into());
        }
        if self.members != Members::Known {
            set(&mut schema, "additionalProperties", false.into());
        }
        schema
    }
}

fn set(of: &mut Value, name: &str, value: Value) {
    if let Some(of) = of.as_object_mut() {
        of.insert(name.to_owned(), value);
    }
}

/// The first of the names, which is the given one where one is given.
#[doc(hidden)]
pub const fn first(names: &[&'static str]) -> &'static str {
    match names {
        [name, ..] => name,
        [] => "",
    }
}

/// Declares a JSON record: its type, serialisation and schema.
///
/// The word in front of the name is its kind: an `answer` has all members; a `request` may omit members with an empty
/// or default value, and unknown members are refused; a `sparse` record omits unknown members. The name in documents is
/// that of the type, or follows `as`; so it is with members.
///
/// After a comma a member has more of its schema, or `"optional"` (in an answer: absent where it has no value), or
/// `"flatten"` (its members are the record's).
///
/// ```
/// use contract::schema::{Schema as _, SharedSchemas};
///
/// contract::message! {
///     answer Pet as "Animal" = "An animal." {
///         id: u64 = "Names it.";
///         kind as "type": Option<String> = "What it is.", { "maxLength": 10 };
///     }
/// }
/// assert_eq!(serde_json::to_string(&Pet { id: 7, kind: None }).unwrap(), r#"{"id":7,"type":null}"#);
/// assert_eq!(Pet::schema(&mut SharedSchemas::new())["required"], serde_json::json!(["id", "type"]));
/// ```
#[macro_export]
macro_rules! message {
    ($(#[$meta:meta])* $vis:vis answer $($rest:tt)+) => {
        $crate::message!(@plain All [#[derive(serde::Serialize, serde::Deserialize)] $(#[$meta])*] $vis $($rest)+);
    };
    ($(#[$meta:meta])* $vis:vis request $($rest:tt)+) => {
        $crate::message!(
            @plain Needed [#[derive(serde::Deserialize)] #[serde(deny_unknown_fields)] $(#[$meta])*] $vis $($rest)+
        );
    };
    (@plain $members:ident [$($meta:tt)*] $vis:vis $name:ident $(as $shared:literal)? = $text:literal {
        $($(#[$attribute:meta])* $field:ident $(as $json:literal)? : $type:ty $(= $what:literal)? $(, $more:tt)? ;)+
    }) => {
        $($meta)*
        #[doc = $text]
        $vis struct $name {
            $($(#[$attribute])* $(#[serde(rename = $json)])? $(#[doc = $what])? $vis $field: $type,)+
        }
        $crate::message!(@schema $members $name [$($shared)?] $text { $([$($json)?] $field $type [$($what)?] [$($more)?];)+ });
    };
    ($(#[$meta:meta])* $vis:vis sparse $name:ident $(as $shared:literal)? = $text:literal {
        $($(#[$attribute:meta])* $field:ident $(as $json:literal)? : $type:ty $(= $what:literal)? $(, $more:tt)? ;)+
    }) => {
        #[derive(serde::Serialize, serde::Deserialize)]
        $(#[$meta])*
        #[doc = $text]
        $vis struct $name {$(
            $(#[$attribute])* $(#[serde(rename = $json)])? $(#[doc = $what])?
            #[serde(skip_serializing_if = "contract::schema::is_absent")]
            $vis $field: $type,
        )+}
        $crate::message!(@schema Known $name [$($shared)?] $text { $([$($json)?] $field $type [$($what)?] [$($more)?];)+ });
    };
    (@schema $members:ident $name:ident [$($shared:literal)?] $text:literal {
        $([$($json:literal)?] $field:ident $type:ty [$($what:literal)?] [$($more:tt)?];)+
    }) => {
        impl $crate::schema::Schema for $name {
            const NAME: &'static str = $crate::schema::first(&[$($shared,)? stringify!($name)]);

            fn schema(shared: &mut $crate::schema::SharedSchemas) -> $crate::schema::Value {
                let mut record = $crate::schema::RecordSchema::new($crate::schema::Members::$members);
                $({
                    let name = $crate::schema::first(&[$($json,)? stringify!($field)]);
                    let more: &[$crate::schema::Value] = &[$($crate::schema::json!($more))?];
                    record.member::<$type>(shared, name, $crate::schema::first(&[$($what)?]), more.first());
                })+
                record.finish($text)
            }
        }
    };
}
