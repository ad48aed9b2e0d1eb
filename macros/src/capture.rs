//! What a workflow's step captures of its parameters: everything but its context, which it has
//! used by the time that it returns. So `&ctx.branch("left")` may be given to it, as by hand.

use proc_macro2::{Span, TokenStream};
use quote::quote;
use syn::{
    GenericParam, Lifetime, PathArguments, PathSegment, Signature, TypeFnPtr, TypeImplTrait,
    TypeReference, parse_quote,
    visit_mut::{VisitMut, visit_path_segment_mut, visit_type_reference_mut},
};

/// Gives the parameters' lifetimes names, and says which of them are captured: `+ use<'a, T>`.
/// Nothing is said, and so everything captured, where a type has no name (`impl Trait`).
pub(crate) fn capture(signature: &mut Signature) -> TokenStream {
    let mut names = Names { made: Vec::new(), nameless: false };
    let before = signature.inputs.clone();
    for input in signature.inputs.iter_mut().skip(1) {
        names.visit_fn_arg_mut(input);
    }
    if names.nameless {
        signature.inputs = before;
        return TokenStream::new();
    }
    let declared: Vec<TokenStream> = signature
        .generics
        .params
        .iter()
        .map(|param| match param {
            GenericParam::Lifetime(lifetime) => {
                let lifetime = &lifetime.lifetime;
                quote!(#lifetime)
            }
            GenericParam::Type(kind) => {
                let name = &kind.ident;
                quote!(#name)
            }
            GenericParam::Const(value) => {
                let name = &value.ident;
                quote!(#name)
            }
        })
        .collect();
    let made = names.made;
    for name in made.iter().rev() {
        signature.generics.params.insert(0, parse_quote!(#name));
    }
    quote!(+ use<#(#made,)* #(#declared),*>)
}

/// Names lifetimes that have none.
struct Names {
    made: Vec<Lifetime>,
    nameless: bool,
}

impl Names {
    fn next(&mut self) -> Lifetime {
        let name = format!("'argument{}", self.made.len());
        let name = Lifetime::new(&name, Span::mixed_site());
        self.made.push(name.clone());
        name
    }
}

impl VisitMut for Names {
    fn visit_type_reference_mut(&mut self, reference: &mut TypeReference) {
        if reference.lifetime.is_none() {
            reference.lifetime = Some(self.next());
        }
        visit_type_reference_mut(self, reference);
    }

    fn visit_lifetime_mut(&mut self, lifetime: &mut Lifetime) {
        if lifetime.ident == "_" {
            *lifetime = self.next();
        }
    }

    fn visit_path_segment_mut(&mut self, segment: &mut PathSegment) {
        // In `Fn(&T)` a lifetime is the caller's.
        match &segment.arguments {
            PathArguments::Parenthesized(_) => {}
            _ => visit_path_segment_mut(self, segment),
        }
    }

    // So it is in `fn(&T)`.
    fn visit_type_fn_ptr_mut(&mut self, _: &mut TypeFnPtr) {}

    fn visit_type_impl_trait_mut(&mut self, _: &mut TypeImplTrait) {
        self.nameless = true;
    }
}
