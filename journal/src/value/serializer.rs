//! The one serializer: serde's data model into any [`Sink`].
//!
//! | Rust | written as |
//! | --- | --- |
//! | `()`, `None` | nil |
//! | unit struct | nil; an empty array directly inside `Some` |
//! | `Some(x)`, newtype struct | `x` |
//! | struct | map of field names |
//! | tuple, tuple struct, sequence | array |
//! | enum: unit / newtype / tuple / struct variant | `"V"` / `{"V": x}` / `{"V": [..]}` / `{"V": {..}}` |
//!
//! A number of `serde_json` is a number whether or not some crate of the build switched its
//! feature `arbitrary_precision` on, so that a build does not change fingerprints.
//!
//! `Some` of anything written as nil is refused, since it would be read back as `None`.

use serde::ser::{self, Serialize};

use super::{
    error::{ValueError, ValueErrorKind},
    number,
    sink::{Open, Sink, Written, slice},
    walk::Int,
};

/// Serializes one value into `sink`.
pub(crate) struct Serializer<'s, S> {
    sink: &'s mut S,
    /// How many `Some` directly surround this value.
    somes: usize,
}

impl<'s, S: Sink> Serializer<'s, S> {
    pub(crate) fn new(sink: &'s mut S) -> Self {
        Self { sink, somes: 0 }
    }

    fn nil(self, what: &'static str) -> Written {
        if self.somes == 0 {
            return self.sink.nil();
        }
        let cure = "give it a type that tells the two apart, such as an enum or a bool";
        let message = format!("`Some({what})` would be read back as `None`; {cure}");
        Err(ValueError::new(ValueErrorKind::WouldChange, message))
    }

    fn variant(self, name: &'static str) -> Result<(&'s mut S, Open), ValueError> {
        let outer = self.sink.open_map(Some(1))?;
        self.sink.buffer().key();
        self.sink.text(name)?;
        self.sink.buffer().value();
        Ok((self.sink, outer))
    }
}

impl<'s, S: Sink> ser::Serializer for Serializer<'s, S> {
    type Ok = ();
    type Error = ValueError;
    type SerializeSeq = Elements<'s, S>;
    type SerializeTuple = Elements<'s, S>;
    type SerializeTupleStruct = Elements<'s, S>;
    type SerializeTupleVariant = Elements<'s, S>;
    type SerializeMap = Entries<'s, S>;
    type SerializeStruct = Fields<'s, S>;
    type SerializeStructVariant = Fields<'s, S>;

    fn serialize_bool(self, v: bool) -> Written {
        self.sink.boolean(v)
    }
    fn serialize_i8(self, v: i8) -> Written {
        self.serialize_i128(v.into())
    }
    fn serialize_i16(self, v: i16) -> Written {
        self.serialize_i128(v.into())
    }
    fn serialize_i32(self, v: i32) -> Written {
        self.serialize_i128(v.into())
    }
    fn serialize_i64(self, v: i64) -> Written {
        self.serialize_i128(v.into())
    }
    fn serialize_i128(self, v: i128) -> Written {
        self.sink.int(v.into())
    }
    fn serialize_u8(self, v: u8) -> Written {
        self.serialize_u128(v.into())
    }
    fn serialize_u16(self, v: u16) -> Written {
        self.serialize_u128(v.into())
    }
    fn serialize_u32(self, v: u32) -> Written {
        self.serialize_u128(v.into())
    }
    fn serialize_u64(self, v: u64) -> Written {
        self.serialize_u128(v.into())
    }
    fn serialize_u128(self, v: u128) -> Written {
        self.sink.int(Int::Pos(v))
    }
    fn serialize_f32(self, v: f32) -> Written {
        self.sink.f32(v)
    }
    fn serialize_f64(self, v: f64) -> Written {
        self.sink.f64(v)
    }
    fn serialize_char(self, v: char) -> Written {
        self.sink.text(v.encode_utf8(&mut [0; 4]))
    }
    fn serialize_str(self, v: &str) -> Written {
        self.sink.text(v)
    }
    fn serialize_bytes(self, v: &[u8]) -> Written {
        self.sink.bytes(v)
    }
    fn serialize_none(self) -> Written {
        self.nil("None")
    }
    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Written {
        // `Option<Box<Self>>` can nest without any container; it is bounded all the same.
        let depth_max = self.sink.buffer().depth_max();
        if self.somes >= depth_max {
            return Err(ValueError::too_deep(depth_max));
        }
        value.serialize(Serializer { sink: self.sink, somes: self.somes + 1 })
    }
    fn serialize_unit(self) -> Written {
        self.nil("()")
    }
    fn serialize_unit_struct(self, _name: &'static str) -> Written {
        if self.somes == 0 {
            return self.sink.nil();
        }
        let open = self.sink.open_array(Some(0))?;
        self.sink.close_array(open, 0)
    }
    fn serialize_unit_variant(self, _: &'static str, _: u32, variant: &'static str) -> Written {
        self.sink.text(variant)
    }
    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, _: &'static str, v: &T) -> Written {
        v.serialize(self)
    }
    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _name: &'static str,
        _index: u32,
        variant: &'static str,
        value: &T,
    ) -> Written {
        let (sink, outer) = self.variant(variant)?;
        value.serialize(Serializer::new(sink)).map_err(|e| e.at(variant))?;
        sink.close_map(outer, 1, true)
    }
    fn serialize_seq(self, len: Option<usize>) -> Result<Elements<'s, S>, ValueError> {
        let open = self.sink.open_array(len)?;
        Ok(Elements { sink: self.sink, open, variant: None, count: 0 })
    }
    fn serialize_tuple(self, len: usize) -> Result<Elements<'s, S>, ValueError> {
        self.serialize_seq(Some(len))
    }
    fn serialize_tuple_struct(
        self,
        _name: &'static str,
        len: usize,
    ) -> Result<Elements<'s, S>, ValueError> {
        self.serialize_seq(Some(len))
    }
    fn serialize_tuple_variant(
        self,
        _name: &'static str,
        _index: u32,
        variant: &'static str,
        len: usize,
    ) -> Result<Elements<'s, S>, ValueError> {
        let (sink, outer) = self.variant(variant)?;
        let open = sink.open_array(Some(len)).map_err(|e| e.at(variant))?;
        Ok(Elements { sink, open, variant: Some((variant, outer)), count: 0 })
    }
    fn serialize_map(self, len: Option<usize>) -> Result<Entries<'s, S>, ValueError> {
        let open = self.sink.open_map(len)?;
        Ok(Entries { sink: self.sink, open, key: 0..0, count: 0 })
    }
    fn serialize_struct(self, name: &'static str, len: usize) -> Result<Fields<'s, S>, ValueError> {
        let open = match name {
            number::SERDE_JSON => None,
            _ => Some(self.sink.open_map(Some(len))?),
        };
        Ok(Fields { sink: self.sink, open, variant: None, count: 0 })
    }
    fn serialize_struct_variant(
        self,
        _name: &'static str,
        _index: u32,
        variant: &'static str,
        len: usize,
    ) -> Result<Fields<'s, S>, ValueError> {
        let (sink, outer) = self.variant(variant)?;
        let open = sink.open_map(Some(len)).map_err(|e| e.at(variant))?;
        Ok(Fields { sink, open: Some(open), variant: Some((variant, outer)), count: 0 })
    }
    /// Types that have a form for people use it: a UUID is text in Rust, in JSON typed by an
    /// operator and in Python, and so has one fingerprint. It is also the form that serde assumes
    /// inside untagged enums and flattened fields.
    fn is_human_readable(&self) -> bool {
        true
    }
}

/// An array under construction.
pub(crate) struct Elements<'s, S> {
    sink: &'s mut S,
    open: Open,
    variant: Option<(&'static str, Open)>,
    count: usize,
}

/// Adds the variant's name to the path of an error.
fn inside(error: ValueError, variant: Option<(&'static str, Open)>) -> ValueError {
    match variant {
        Some((name, _)) => error.at(name),
        None => error,
    }
}

impl<S: Sink> Elements<'_, S> {
    fn element<T: Serialize + ?Sized>(&mut self, value: &T) -> Written {
        value
            .serialize(Serializer::new(self.sink))
            .map_err(|e| inside(e.at(self.count), self.variant))?;
        self.count += 1;
        Ok(())
    }

    fn close(self) -> Written {
        self.sink.close_array(self.open, self.count)?;
        match self.variant {
            Some((_, outer)) => self.sink.close_map(outer, 1, true),
            None => Ok(()),
        }
    }
}

impl<S: Sink> ser::SerializeSeq for Elements<'_, S> {
    type Ok = ();
    type Error = ValueError;
    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Written {
        self.element(value)
    }
    fn end(self) -> Written {
        self.close()
    }
}

impl<S: Sink> ser::SerializeTuple for Elements<'_, S> {
    type Ok = ();
    type Error = ValueError;
    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Written {
        self.element(value)
    }
    fn end(self) -> Written {
        self.close()
    }
}

impl<S: Sink> ser::SerializeTupleStruct for Elements<'_, S> {
    type Ok = ();
    type Error = ValueError;
    fn serialize_field<T: Serialize + ?Sized>(&mut self, value: &T) -> Written {
        self.element(value)
    }
    fn end(self) -> Written {
        self.close()
    }
}

impl<S: Sink> ser::SerializeTupleVariant for Elements<'_, S> {
    type Ok = ();
    type Error = ValueError;
    fn serialize_field<T: Serialize + ?Sized>(&mut self, value: &T) -> Written {
        self.element(value)
    }
    fn end(self) -> Written {
        self.close()
    }
}

/// A map under construction.
pub(crate) struct Entries<'s, S> {
    sink: &'s mut S,
    open: Open,
    /// Where the newest key was written.
    key: std::ops::Range<usize>,
    count: usize,
}

impl<S: Sink> ser::SerializeMap for Entries<'_, S> {
    type Ok = ();
    type Error = ValueError;
    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Written {
        self.sink.buffer().key();
        key.serialize(Serializer::new(self.sink))?;
        self.key = self.sink.buffer().value();
        self.count += 1;
        Ok(())
    }
    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Written {
        value
            .serialize(Serializer::new(self.sink))
            .map_err(|e| e.at(S::shown_key(slice(&self.sink.buffer().out, self.key.clone()))))
    }
    fn end(self) -> Written {
        self.sink.close_map(self.open, self.count, false)
    }
}

/// A struct under construction.
pub(crate) struct Fields<'s, S> {
    sink: &'s mut S,
    /// None for a number of `serde_json` in disguise.
    open: Option<Open>,
    variant: Option<(&'static str, Open)>,
    count: usize,
}

impl<S: Sink> Fields<'_, S> {
    fn field<T: Serialize + ?Sized>(&mut self, key: &'static str, value: &T) -> Written {
        if self.open.is_none() {
            return number::write(value, self.sink);
        }
        self.sink.buffer().key();
        self.sink.text(key)?;
        self.sink.buffer().value();
        value.serialize(Serializer::new(self.sink)).map_err(|e| inside(e.at(key), self.variant))?;
        self.count += 1;
        Ok(())
    }

    fn close(self) -> Written {
        let Some(open) = self.open else {
            return Ok(());
        };
        self.sink.close_map(open, self.count, false).map_err(|e| inside(e, self.variant))?;
        match self.variant {
            Some((_, outer)) => self.sink.close_map(outer, 1, true),
            None => Ok(()),
        }
    }
}

impl<S: Sink> ser::SerializeStruct for Fields<'_, S> {
    type Ok = ();
    type Error = ValueError;
    fn serialize_field<T: Serialize + ?Sized>(&mut self, key: &'static str, value: &T) -> Written {
        self.field(key, value)
    }
    fn end(self) -> Written {
        self.close()
    }
}

impl<S: Sink> ser::SerializeStructVariant for Fields<'_, S> {
    type Ok = ();
    type Error = ValueError;
    fn serialize_field<T: Serialize + ?Sized>(&mut self, key: &'static str, value: &T) -> Written {
        self.field(key, value)
    }
    fn end(self) -> Written {
        self.close()
    }
}
