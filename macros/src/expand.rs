//! What is written in place of the function.

use proc_macro2::{Span, TokenStream, TokenTree};
use quote::{ToTokens, quote, quote_spanned};
use syn::{
    Error, Expr, Ident, Path, Result, ReturnType, Token, Type, parse_quote, parse2,
    spanned::Spanned,
};

use crate::{
    capture::capture,
    function::{Function, Parameter},
    options::{Options, Policy, Shape},
};

pub(crate) fn step(attribute: TokenStream, item: TokenStream) -> Result<TokenStream> {
    let options: Options = parse2(attribute)?;
    let function = Function::read(item, options.shape)?;
    let names: Vec<&Ident> = function.parameters.iter().map(|p| &p.name).collect();
    if let Some(operation) = &options.operation
        && names.contains(&operation)
    {
        let why = "a parameter has this name already; the operation is given by the journal and \
                   not by the caller, so it is no parameter";
        return Err(Error::new(operation.span(), why));
    }
    let parts = Parts::of(&options, &function)?;
    Ok(match function.shape {
        Shape::Guard => guard(&options, function, &parts),
        Shape::Workflow => workflow(&options, function, &parts),
    })
}

/// What both shapes are made of.
struct Parts {
    /// `.idempotent()`, and what follows it.
    builder: TokenStream,
    /// A constructor of the map that is recorded.
    record: TokenStream,
    /// `op: Operation`.
    operation: TokenStream,
}

impl Parts {
    fn of(options: &Options, function: &Function) -> Result<Self> {
        let home = &options.home;
        let arguments: Vec<&Ident> = function.arguments().map(|p| &p.name).collect();
        let policy = match (options.policy, &options.probe) {
            (Policy::Reconcile, Some(probe)) => {
                let probe = probing(probe, function);
                quote!(reconcile(#probe))
            }
            (Policy::Read, _) => quote!(read()),
            (Policy::Idempotent, _) => quote!(idempotent()),
            (Policy::Reconcile | Policy::AtMostOnce, _) => quote!(at_most_once()),
        };
        let calls = options.calls(function.shape, &arguments)?;
        let kind = match options.policy {
            Policy::Read => quote!(Attempt),
            _ => quote!(Operation),
        };
        let operation = match &options.operation {
            Some(name) => quote!(#name: #home::#kind),
            None => quote!(_: #home::#kind),
        };
        let record = record(&arguments, home);
        Ok(Self { builder: quote!(.#policy #(#calls)*), record, operation })
    }
}

/// A constructor of a map from these names to values: `({ .. })(value, value)`.
pub(crate) fn record(names: &[&Ident], home: &Path) -> TokenStream {
    let types: Vec<Ident> =
        (0..names.len()).map(|n| Ident::new(&format!("A{n}"), Span::mixed_site())).collect();
    let texts = names.iter().map(|name| {
        let text = name.to_string();
        text.strip_prefix("r#").map(str::to_owned).unwrap_or(text)
    });
    let places = (0..names.len()).map(syn::Index::from);
    let count = names.len();
    quote! {({
        struct Record<#(#types),*>(#(#types),*);
        impl<#(#types: #home::__serde::Serialize),*> #home::__serde::Serialize
            for Record<#(#types),*>
        {
            fn serialize<S: #home::__serde::Serializer>(
                &self,
                serializer: S,
            ) -> ::core::result::Result<S::Ok, S::Error> {
                #[allow(unused_imports)]
                use #home::__serde::ser::SerializeStruct as _;
                #[allow(unused_mut)]
                let mut map = serializer.serialize_struct("arguments", #count)?;
                #(map.serialize_field(#texts, &self.#places)?;)*
                map.end()
            }
        }
        Record
    })}
}

/// The probe. It owns what it uses of the parameters, as the body does.
fn probing(probe: &Expr, function: &Function) -> TokenStream {
    let mut probe = probe.clone();
    if let Expr::Closure(closure) = &mut probe {
        closure.capture = Some(Token![move](closure.inputs_begin.span));
    }
    let mut words = Vec::new();
    words_of(probe.to_token_stream(), &mut words);
    let used = function.parameters.iter().map(|p| &p.name).filter(|name| words.contains(name));
    let copies = used.map(|name| quote!(let #name = ::core::clone::Clone::clone(&#name);));
    quote!({ #(#copies)* #probe })
}

fn words_of(tokens: TokenStream, words: &mut Vec<Ident>) {
    for token in tokens {
        match token {
            TokenTree::Ident(word) => words.push(word),
            TokenTree::Group(group) => words_of(group.stream(), words),
            // A text of `format!` may name a parameter too.
            TokenTree::Literal(text) => words.extend(words_in(&text.to_string())),
            TokenTree::Punct(_) => {}
        }
    }
}

fn words_in(text: &str) -> Vec<Ident> {
    let inside = text.split('{').skip(1).filter_map(|rest| rest.split(['}', ':']).next());
    inside.filter_map(|word| syn::parse_str(word).ok()).collect()
}

/// The body in its closure. What it captures is cloned for each attempt.
fn closure(
    options: &Options,
    function: &Function,
    parts: &Parts,
    arguments: &[TokenStream],
) -> TokenStream {
    let Parts { operation, .. } = parts;
    let home = &options.home;
    let body = &function.item.block;
    let mutable = function.parameters.iter().filter(|p| p.mutable).map(|p| {
        let name = &p.name;
        quote!(let mut #name = #name;)
    });
    quote! {
        async move |#operation| -> ::core::result::Result<_, #home::StepError> {
            #(#arguments)*
            #(#mutable)*
            #body
        }
    }
}

/// `async fn`, as it was, with the guard's call as its body.
fn guard(options: &Options, function: Function, parts: &Parts) -> TokenStream {
    let Parts { builder, record, .. } = parts;
    let (home, name) = (&options.home, &options.name);
    let first = &function.first;
    let names: Vec<&Ident> = function.arguments().map(|p| &p.name).collect();
    let recorded = function.arguments().map(|p| recorded(p, home));
    let copies: Vec<TokenStream> = function.arguments().map(copy).collect();
    let body = closure(options, &function, parts, &copies);
    let [args, declared, _] = locals();
    let mut item = function.item.clone();
    item.block = parse_quote! {{
        let #args = #record(#(#recorded),*);
        let #declared = #first.guard(#name) #builder .declared_in(::core::module_path!());
        #(let #names = &#names;)*
        #declared.call(&#args, #body).await.map_err(::core::convert::From::from)
    }};
    item.into_token_stream()
}

/// A plain function that gives the step's future: the call is made when it is called.
fn workflow(options: &Options, function: Function, parts: &Parts) -> TokenStream {
    let Parts { builder, record, .. } = parts;
    let (home, name) = (&options.home, &options.name);
    let first = &function.first;
    let clone = quote!(::core::clone::Clone::clone);
    let recorded = function.arguments().map(|p| {
        let kept = recorded(p, home);
        let at = p.kind.span();
        quote_spanned!(at=> #clone(#kept))
    });
    let body = closure(options, &function, parts, &[]);
    let mut item = function.item.clone();
    let output: Type = match &item.sig.output {
        ReturnType::Type(_, kind) => (**kind).clone(),
        ReturnType::Default => parse_quote!(()),
    };
    item.sig.asyncness = None;
    let captured = capture(&mut item.sig);
    item.sig.output = parse_quote! {
        -> impl ::core::future::Future<Output = #output> + ::core::marker::Send #captured
    };
    let [args, declared, running] = locals();
    item.block = parse_quote! {{
        let #declared = #first.step(#name) #builder;
        let #args = #record(#(#recorded),*);
        let #running = #declared.run(&#args, #body);
        async move { #running.await.map_err(::core::convert::From::from) }
    }};
    item.into_token_stream()
}

/// Names that no name of the function's can mean.
fn locals() -> [Ident; 3] {
    ["args", "declared", "running"].map(|name| Ident::new(name, Span::mixed_site()))
}

/// A reference to an argument, with the error at the argument if it cannot be recorded.
fn recorded(parameter: &Parameter, home: &Path) -> TokenStream {
    let (name, kind) = (&parameter.name, &parameter.kind);
    let at = kind.span();
    quote_spanned! {at=> {
        #[diagnostic::on_unimplemented(
            message = "this argument cannot be recorded: `{Self}` is not `Serialize`",
            label = "is no value",
            note = "derive `serde::Serialize`; or mark the parameter `#[hands]` if the result does \
                    not depend on it"
        )]
        trait Recorded {}
        #[diagnostic::do_not_recommend]
        impl<A: #home::__serde::Serialize> Recorded for A {}
        fn recorded<A: Recorded>(argument: &A) -> &A {
            argument
        }
        recorded(&#name)
    }}
}

/// The body's own copy of an argument that it captured by reference.
fn copy(parameter: &Parameter) -> TokenStream {
    let name = &parameter.name;
    let at = parameter.kind.span();
    quote_spanned! {at=>
        #[allow(unused_variables)]
        let #name = ::core::clone::Clone::clone(#name);
    }
}
