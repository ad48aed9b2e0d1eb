//! MessagePack into values: checked as a whole first, then read.

use serde::de::{self, DeserializeOwned, Unexpected, Visitor};

use super::{
    access::{Elements, Entries, Variant},
    error::{ValueError, ValueErrorKind},
    sink::bad_text,
    walk::{self, Int, Reader, Token},
};
use crate::limits::ValueLimits;

/// Reads what [`encode`](super::encode) wrote.
///
/// The bytes are checked as a whole before the first of them is decoded, and no input makes this
/// panic or overflow the stack: depth is bounded by `limits`, lengths by the bytes that are there.
///
/// # Errors
/// Bytes that are not one whole MessagePack value, deeper or larger than `limits`, or a value that
/// does not fit `T`; the error names the place.
pub fn decode<T: DeserializeOwned>(bytes: &[u8], limits: &ValueLimits) -> Result<T, ValueError> {
    walk::check(bytes, limits)?;
    let mut reader = Reader::new(bytes);
    let value = T::deserialize(Deserializer { reader: &mut reader })?;
    reader.finish()?;
    Ok(value)
}

/// Reads one value from a reader whose bytes were checked.
pub(super) struct Deserializer<'r, 'de> {
    pub(super) reader: &'r mut Reader<'de>,
}

/// Forwards methods that take a text, which stands there nearly always.
macro_rules! text {
    ($($method:ident)*) => {$(
        #[inline]
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ValueError> {
            match self.reader.take_text() {
                Some(text) => visitor.visit_borrowed_str(text),
                None => self.deserialize_any(visitor),
            }
        }
    )*};
}

/// Forwards methods that take any token.
macro_rules! any {
    ($($method:ident)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ValueError> {
            self.deserialize_any(visitor)
        }
    )*};
}

impl<'de> Deserializer<'_, 'de> {
    fn array<V: Visitor<'de>>(self, count: usize, visitor: V) -> Result<V::Value, ValueError> {
        let mut elements = Elements::new(self.reader, count);
        let value = visitor.visit_seq(&mut elements)?;
        elements.finish()?;
        Ok(value)
    }

    fn map<V: Visitor<'de>>(self, count: usize, visitor: V) -> Result<V::Value, ValueError> {
        let mut entries = Entries::new(self.reader, count);
        let value = visitor.visit_map(&mut entries)?;
        entries.finish()?;
        Ok(value)
    }

    fn ext(kind: i8, bytes: &[u8]) -> ValueError {
        let length = bytes.len();
        ValueError::new(
            ValueErrorKind::Mismatch,
            format!(
                "it holds an extension of type {kind} with {length} bytes, which no Rust type \
                     reads; read it as raw MessagePack"
            ),
        )
    }
}

impl<'de> de::Deserializer<'de> for Deserializer<'_, 'de> {
    type Error = ValueError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ValueError> {
        match self.reader.next()? {
            Token::Nil => visitor.visit_unit(),
            Token::Bool(value) => visitor.visit_bool(value),
            Token::Int(Int::Pos(value)) => match (u64::try_from(value), i128::try_from(value)) {
                (Ok(value), _) => visitor.visit_u64(value),
                (_, Ok(value)) => visitor.visit_i128(value),
                _ => visitor.visit_u128(value),
            },
            Token::Int(Int::Neg(value)) => match i64::try_from(value) {
                Ok(value) => visitor.visit_i64(value),
                Err(_) => visitor.visit_i128(value),
            },
            Token::F32(value) => visitor.visit_f32(value),
            Token::F64(value) => visitor.visit_f64(value),
            Token::Text(value) => visitor.visit_borrowed_str(value),
            Token::BadText(_) => Err(bad_text()),
            Token::Bytes(value) => visitor.visit_borrowed_bytes(value),
            Token::Ext(kind, bytes) => Err(Self::ext(kind, bytes)),
            Token::Array(count) => self.array(count, visitor),
            Token::Map(count) => self.map(count, visitor),
        }
    }

    text! { deserialize_str deserialize_string deserialize_identifier }

    any! {
        deserialize_bool deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64
        deserialize_i128 deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64
        deserialize_u128 deserialize_char deserialize_bytes deserialize_byte_buf
        deserialize_unit deserialize_seq deserialize_map
    }

    fn deserialize_f32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ValueError> {
        match self.reader.peek()? {
            // A cast of a NaN may lose bits that serde's own reading of an `f32` keeps.
            Token::F64(value) if value.is_nan() => {
                self.reader.skip()?;
                visitor.visit_f32(narrow_nan(value))
            }
            _ => self.deserialize_any(visitor),
        }
    }

    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ValueError> {
        let mut ahead = self.reader.clone();
        match ahead.next()? {
            Token::F32(value) => {
                *self.reader = ahead;
                visitor.visit_f64(super::canonical::widen(value))
            }
            Token::Int(value) => {
                *self.reader = ahead;
                visitor.visit_f64(exact(value)?)
            }
            _ => self.deserialize_any(visitor),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ValueError> {
        if self.reader.is_nil() {
            self.reader.skip()?;
            return visitor.visit_none();
        }
        visitor.visit_some(self)
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, ValueError> {
        if self.reader.peek()? == Token::Array(0) {
            self.reader.skip()?;
            return visitor.visit_unit();
        }
        self.deserialize_any(visitor)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, ValueError> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_tuple<V: Visitor<'de>>(
        self,
        _len: usize,
        visitor: V,
    ) -> Result<V::Value, ValueError> {
        self.deserialize_any(visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _len: usize,
        visitor: V,
    ) -> Result<V::Value, ValueError> {
        self.deserialize_any(visitor)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ValueError> {
        self.deserialize_any(visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ValueError> {
        let mut ahead = self.reader.clone();
        let bare = match ahead.next()? {
            Token::Map(1) => {
                *self.reader = ahead;
                false
            }
            Token::Text(_) => true,
            other => {
                let found = unexpected(&other);
                return Err(de::Error::invalid_type(found, &"a variant's name, or a map of one"));
            }
        };
        visitor.visit_enum(Variant::new(self.reader, bare))
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ValueError> {
        self.reader.skip()?;
        visitor.visit_unit()
    }

    fn is_human_readable(&self) -> bool {
        true
    }
}

/// An integer as a float, unless digits would be lost.
fn exact(value: Int) -> Result<f64, ValueError> {
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the cast back decides whether it was exact; saturation cannot make it so, since \
                  the only float that saturates is 2^128 and its integer is not its neighbour"
    )]
    let (float, same) = match value {
        Int::Pos(value) => (value as f64, (value as f64) as u128 == value && value != u128::MAX),
        Int::Neg(value) => (value as f64, (value as f64) as i128 == value),
    };
    if same {
        return Ok(float);
    }
    Err(ValueError::new(
        ValueErrorKind::Mismatch,
        format!("the integer {value} would lose digits as a 64-bit float; read it as an integer"),
    ))
}

/// The 32-bit NaN that widens to this one, as far as there is one.
fn narrow_nan(value: f64) -> f32 {
    let bits = value.to_bits();
    let sign = u32::from(value.is_sign_negative()) << 31;
    let payload = u32::try_from(bits >> 29 & 0x007f_ffff).unwrap_or_default();
    let quiet = if payload == 0 { 0x0040_0000 } else { 0 };
    f32::from_bits(sign | 0x7f80_0000 | payload | quiet)
}

fn unexpected<'a>(token: &Token<'a>) -> Unexpected<'a> {
    match *token {
        Token::Nil => Unexpected::Unit,
        Token::Bool(value) => Unexpected::Bool(value),
        Token::Int(Int::Pos(value)) => u64::try_from(value)
            .map_or(Unexpected::Other("a 128-bit integer"), Unexpected::Unsigned),
        Token::Int(Int::Neg(value)) => {
            i64::try_from(value).map_or(Unexpected::Other("a 128-bit integer"), Unexpected::Signed)
        }
        Token::F32(value) => Unexpected::Float(value.into()),
        Token::F64(value) => Unexpected::Float(value),
        Token::Text(value) => Unexpected::Str(value),
        Token::BadText(_) => Unexpected::Other("text that is not UTF-8"),
        Token::Bytes(value) => Unexpected::Bytes(value),
        Token::Ext(..) => Unexpected::Other("an extension"),
        Token::Array(_) => Unexpected::Seq,
        Token::Map(_) => Unexpected::Map,
    }
}
