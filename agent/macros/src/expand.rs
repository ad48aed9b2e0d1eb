//! What becomes of the function.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::{
    Attribute, Error, Expr, ExprLit, FnArg, GenericArgument, Ident, ItemFn, Lit, Meta, Pat,
    PathArguments, ReturnType, Type, spanned::Spanned,
};

use crate::says::{Class, Says};

/// A parameter of the function.
struct Parameter {
    name: Ident,
    kind: Type,
    what: What,
    docs: Vec<Attribute>,
}

/// Where its value comes from.
enum What {
    /// The model.
    Argument { default: Option<Expr> },
    /// The runtime.
    Call,
    /// Whoever makes the tool.
    Hand,
    /// A hook.
    Secret,
}

pub(crate) fn tool(says: &Says, function: ItemFn) -> syn::Result<TokenStream> {
    if function.sig.asyncness.is_none() {
        return Err(Error::new(function.sig.fn_token.span(), "a tool is an `async fn`"));
    }
    if !function.sig.generics.params.is_empty() {
        return Err(Error::new(function.sig.generics.span(), "a tool has no generic parameters"));
    }
    let parameters: Vec<Parameter> =
        function.sig.inputs.iter().map(parameter).collect::<syn::Result<_>>()?;
    let output = output(&function.sig.output)?;
    let of = |wanted: fn(&What) -> bool| parameters.iter().filter(move |p| wanted(&p.what));
    for name in &says.identity {
        let arguments = &mut of(|what| matches!(what, What::Argument { .. }));
        if !arguments.any(|argument| argument.name == *name) {
            return Err(Error::new(name.span(), "the tool takes no such argument"));
        }
    }

    let function_name = &function.sig.ident;
    let struct_name = format_ident!("{}", pascal(&function_name.to_string()));
    let args_name = format_ident!("{struct_name}Args");
    let visibility = &function.vis;
    let docs: Vec<_> = function.attrs.iter().filter(|a| a.path().is_ident("doc")).collect();
    let others: Vec<_> = function.attrs.iter().filter(|a| !a.path().is_ident("doc")).collect();
    let arguments = arguments(&args_name, visibility, &parameters);
    let hands: Vec<_> = of(|what| matches!(what, What::Hand)).collect();
    let hand_names: Vec<_> = hands.iter().map(|hand| &hand.name).collect();
    let hand_types: Vec<_> = hands.iter().map(|hand| &hand.kind).collect();
    let said = said(says, &function_name.to_string(), &docs);
    let body = body(&parameters, &function, &output);
    let probe = probe(says, &hand_names);
    let made = format!("Makes the tool `{function_name}`.");
    Ok(quote! {
        #(#docs)*
        #[derive(Clone)]
        #visibility struct #struct_name { #(#hand_names: #hand_types,)* }

        #[doc = #made]
        #[must_use]
        #visibility fn #function_name(#(#hand_names: #hand_types),*) -> #struct_name {
            #struct_name { #(#hand_names),* }
        }

        #arguments

        const _: () = {
            use ::deedbook_agent::__private as private;

            impl ::core::fmt::Debug for #struct_name {
                fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                    f.debug_struct(stringify!(#struct_name)).finish_non_exhaustive()
                }
            }

            impl ::deedbook_agent::Tool for #struct_name {
                type Args = #args_name;
                type Output = #output;

                #said

                #(#others)*
                #body

                #probe
            }
        };
    })
}

fn parameter(input: &FnArg) -> syn::Result<Parameter> {
    let FnArg::Typed(typed) = input else {
        let why = "a tool is a free function; what it needs is a `#[hand]` parameter";
        return Err(Error::new(input.span(), why));
    };
    let Pat::Ident(pattern) = &*typed.pat else {
        return Err(Error::new(typed.pat.span(), "a parameter of a tool has a plain name"));
    };
    let is_call = |kind: &Type| match kind {
        Type::Path(path) => path.path.segments.last().is_some_and(|last| last.ident == "Call"),
        _ => false,
    };
    let (mut docs, mut what) = (Vec::new(), None);
    for attribute in &typed.attrs {
        let path = attribute.path();
        let found = if path.is_ident("doc") {
            docs.push(attribute.clone());
            continue;
        } else if path.is_ident("hand") {
            What::Hand
        } else if path.is_ident("secret") {
            What::Secret
        } else if path.is_ident("default") {
            What::Argument { default: Some(attribute.meta.require_name_value()?.value.clone()) }
        } else {
            let why = "not known here; there are `#[hand]`, `#[secret]` and `#[default = ..]`";
            return Err(Error::new(attribute.span(), why));
        };
        if what.replace(found).is_some() {
            return Err(Error::new(attribute.span(), "a parameter is one thing"));
        }
    }
    let usual = if is_call(&typed.ty) { What::Call } else { What::Argument { default: None } };
    let (name, kind) = (pattern.ident.clone(), (*typed.ty).clone());
    Ok(Parameter { name, kind, what: what.unwrap_or(usual), docs })
}

/// The `T` of `Result<T, E>`.
fn output(returned: &ReturnType) -> syn::Result<Type> {
    let why = "a tool returns `Result<T, StepError>`, or a `Result` of another error";
    let ReturnType::Type(_, kind) = returned else {
        return Err(Error::new(returned.span(), why));
    };
    let Type::Path(path) = &**kind else {
        return Err(Error::new(kind.span(), why));
    };
    let last = path.path.segments.last().filter(|last| last.ident == "Result");
    let Some(PathArguments::AngleBracketed(generics)) = last.map(|last| &last.arguments) else {
        return Err(Error::new(kind.span(), why));
    };
    match generics.args.first() {
        Some(GenericArgument::Type(kind)) => Ok(kind.clone()),
        _ => Err(Error::new(kind.span(), why)),
    }
}

/// The type of what the model sends.
fn arguments(name: &Ident, visibility: &syn::Visibility, parameters: &[Parameter]) -> TokenStream {
    let (mut fields, mut defaults) = (Vec::new(), Vec::new());
    for parameter in parameters {
        let What::Argument { default } = &parameter.what else {
            continue;
        };
        let Parameter { name: field, kind, docs, .. } = parameter;
        let mut serde = quote!();
        if let Some(default) = default {
            let function = format_ident!("default_{field}");
            let path = format!("{name}::{function}");
            serde = quote!(#[serde(default = #path)]);
            defaults.push(quote! {
                fn #function() -> #kind { ::core::convert::From::from(#default) }
            });
        }
        let undocumented = docs.is_empty().then(|| {
            quote!(#[allow(missing_docs, reason = "the \
            function says")])
        });
        fields.push(quote!(#(#docs)* #undocumented #serde pub #field: #kind));
    }
    let doc = "What the model sends.";
    quote! {
        #[doc = #doc]
        #[derive(
            ::deedbook_agent::__private::serde::Deserialize,
            ::deedbook_agent::schemars::JsonSchema,
        )]
        #[serde(crate = "::deedbook_agent::__private::serde")]
        #[schemars(crate = "::deedbook_agent::schemars")]
        #[allow(missing_debug_implementations, reason = "arguments may be private")]
        #visibility struct #name { #(#fields,)* }

        impl #name { #(#defaults)* }
    }
}

fn said(says: &Says, function: &str, docs: &[&Attribute]) -> TokenStream {
    let name = says.name.as_ref().map_or(function.to_owned(), syn::LitStr::value);
    let text = says.description.as_ref().map_or_else(|| description(docs), syn::LitStr::value);
    let effect = match &says.class {
        Class::Read => quote!(::deedbook_agent::Effect::read()),
        Class::Idempotent => quote!(::deedbook_agent::Effect::idempotent()),
        Class::AtMostOnce => quote!(::deedbook_agent::Effect::at_most_once()),
        Class::Mint => quote!(::deedbook_agent::Effect::mint()),
        Class::Reconcile(_) => quote!(::deedbook_agent::Effect::reconcile()),
    };
    let minting = says.minting.then(|| quote!(.minting()));
    let window = says.honoured_for.as_ref().map(|window| quote!(.honoured_for(#window)));
    let timeout = says.timeout.as_ref().map(|timeout| quote!(.timeout(#timeout)));
    let retry = says.retry.as_ref().map(|retry| quote!(.retry(#retry)));
    let approval = says.approval.as_ref().map(|why| quote!(.approval(#why)));
    let scope = says.journal.then(|| quote!(.scope(private::Scope::Journal)));
    let names: Vec<String> = says.identity.iter().map(ToString::to_string).collect();
    let identity = (!names.is_empty()).then(|| quote!(.identity([#(#names),*])));
    quote! {
        fn name(&self) -> &str { #name }
        fn description(&self) -> &str { #text }
        fn effect(&self) -> ::deedbook_agent::Effect { #effect #minting #window }
        fn terms(&self) -> ::deedbook_agent::Terms {
            ::deedbook_agent::Terms::new() #timeout #retry #approval #identity #scope
        }
    }
}

/// The documentation of the function, as one text.
fn description(docs: &[&Attribute]) -> String {
    let lines = docs.iter().filter_map(|attribute| match &attribute.meta {
        Meta::NameValue(pair) => match &pair.value {
            Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => Some(text.value().trim().to_owned()),
            _ => None,
        },
        _ => None,
    });
    lines.collect::<Vec<_>>().join("\n").trim().to_owned()
}

fn body(parameters: &[Parameter], function: &ItemFn, output: &Type) -> TokenStream {
    let block = &function.block;
    let error = match &function.sig.output {
        ReturnType::Type(_, kind) => quote!(#kind),
        ReturnType::Default => quote!(()),
    };
    let lets = parameters.iter().map(|Parameter { name, kind, what, .. }| match what {
        What::Argument { .. } => quote!(let #name: #kind = private_args.#name;),
        What::Call => quote!(let #name: #kind = private_call.clone();),
        What::Hand => quote!(let #name: #kind = ::core::clone::Clone::clone(&self.#name);),
        What::Secret => {
            let text = name.to_string();
            quote! {
                let #name: #kind =
                    ::core::convert::From::from(private_call.secret(#text)?.to_owned());
            }
        }
    });
    quote! {
        #[allow(unused_variables, clippy::needless_pass_by_value, reason = "made by a macro")]
        async fn call(
            &self,
            private_call: ::deedbook_agent::Call,
            private_args: Self::Args,
        ) -> ::core::result::Result<#output, private::StepError> {
            #(#lets)*
            let private_result: #error = async move #block.await;
            private_result.map_err(::core::convert::Into::into)
        }
    }
}

fn probe(says: &Says, hands: &[&Ident]) -> TokenStream {
    let Class::Reconcile(path) = &says.class else {
        return quote!();
    };
    quote! {
        async fn probe(
            &self,
            private_call: ::deedbook_agent::Call,
            private_args: Self::Args,
        ) -> ::core::result::Result<private::Probe<Self::Output>, private::StepError> {
            let _ = private_args;
            #path(private_call, #(::core::clone::Clone::clone(&self.#hands)),*)
                .await
                .map_err(::core::convert::Into::into)
        }
    }
}

/// `issue_refund` as `IssueRefund`.
fn pascal(name: &str) -> String {
    let words = name.trim_start_matches("r#").split('_');
    let word = |word: &str| {
        let mut chars = word.chars();
        chars.next().map(|first| first.to_uppercase().collect::<String>() + chars.as_str())
    };
    words.filter_map(word).collect()
}
