//! The parts of arrays, maps and enums, as serde's visitors ask for them.

use serde::{
    Deserializer as _,
    de::{self, DeserializeSeed, Visitor},
};

use super::{
    decode::Deserializer,
    error::{ValueError, ValueErrorKind},
    view,
    walk::Reader,
};

/// Refuses elements that nobody asked for.
fn finish(left: usize) -> Result<(), ValueError> {
    if left == 0 {
        return Ok(());
    }
    let message = format!("it holds {left} elements more than its type has; the type has changed");
    Err(ValueError::new(ValueErrorKind::Mismatch, message))
}

/// The elements of an array.
pub(super) struct Elements<'r, 'de> {
    reader: &'r mut Reader<'de>,
    left: usize,
    index: usize,
}

impl<'r, 'de> Elements<'r, 'de> {
    pub(super) fn new(reader: &'r mut Reader<'de>, left: usize) -> Self {
        Self { reader, left, index: 0 }
    }

    pub(super) fn finish(&self) -> Result<(), ValueError> {
        finish(self.left)
    }
}

impl<'de> de::SeqAccess<'de> for Elements<'_, 'de> {
    type Error = ValueError;

    fn next_element_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, ValueError> {
        let Some(left) = self.left.checked_sub(1) else {
            return Ok(None);
        };
        self.left = left;
        let reader = &mut *self.reader;
        let value = seed.deserialize(Deserializer { reader }).map_err(|e| e.at(self.index))?;
        self.index += 1;
        Ok(Some(value))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.left)
    }
}

/// The entries of a map.
pub(super) struct Entries<'r, 'de> {
    reader: &'r mut Reader<'de>,
    left: usize,
    /// The bytes from the newest key on, for the path of an error.
    key: &'de [u8],
}

impl<'r, 'de> Entries<'r, 'de> {
    pub(super) fn new(reader: &'r mut Reader<'de>, left: usize) -> Self {
        Self { reader, left, key: &[] }
    }

    pub(super) fn finish(&self) -> Result<(), ValueError> {
        finish(self.left)
    }
}

impl<'de> de::MapAccess<'de> for Entries<'_, 'de> {
    type Error = ValueError;

    fn next_key_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, ValueError> {
        let Some(left) = self.left.checked_sub(1) else {
            return Ok(None);
        };
        self.left = left;
        self.key = self.reader.rest();
        let reader = &mut *self.reader;
        Ok(Some(seed.deserialize(Deserializer { reader })?))
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<S::Value, ValueError> {
        let reader = &mut *self.reader;
        seed.deserialize(Deserializer { reader }).map_err(|e| e.at(view::shown_key(self.key)))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.left)
    }
}

/// A variant: its bare name, or its name and its content.
pub(super) struct Variant<'r, 'de> {
    reader: &'r mut Reader<'de>,
    bare: bool,
}

impl<'r, 'de> Variant<'r, 'de> {
    pub(super) fn new(reader: &'r mut Reader<'de>, bare: bool) -> Self {
        Self { reader, bare }
    }
}

impl<'r, 'de> de::EnumAccess<'de> for Variant<'r, 'de> {
    type Error = ValueError;
    type Variant = Content<'r, 'de>;

    fn variant_seed<S: DeserializeSeed<'de>>(
        self,
        seed: S,
    ) -> Result<(S::Value, Content<'r, 'de>), ValueError> {
        let name = self.reader.rest();
        let reader = &mut *self.reader;
        let value = seed.deserialize(Deserializer { reader })?;
        let content = Content { reader: self.reader, bare: self.bare, name };
        Ok((value, content))
    }
}

/// What a variant holds.
pub(super) struct Content<'r, 'de> {
    reader: &'r mut Reader<'de>,
    bare: bool,
    name: &'de [u8],
}

impl<'r, 'de> Content<'r, 'de> {
    fn read<T>(
        self,
        read: impl FnOnce(Deserializer<'r, 'de>) -> Result<T, ValueError>,
    ) -> Result<T, ValueError> {
        if self.bare {
            let name = view::shown_key(self.name);
            let message = format!("the variant `{name}` is without its content");
            return Err(ValueError::new(ValueErrorKind::Mismatch, message));
        }
        let (reader, name) = (self.reader, self.name);
        read(Deserializer { reader }).map_err(|e| e.at(view::shown_key(name)))
    }
}

impl<'de> de::VariantAccess<'de> for Content<'_, 'de> {
    type Error = ValueError;

    fn unit_variant(self) -> Result<(), ValueError> {
        if self.bare {
            return Ok(());
        }
        self.read(<() as de::Deserialize>::deserialize)
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(
        self,
        seed: S,
    ) -> Result<S::Value, ValueError> {
        self.read(|content| seed.deserialize(content))
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, ValueError> {
        self.read(|content| content.deserialize_any(visitor))
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ValueError> {
        self.read(|content| content.deserialize_any(visitor))
    }
}
