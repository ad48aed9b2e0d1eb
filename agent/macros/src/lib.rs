//! The attribute that makes a tool of a function: use it through `deedbook-agent`.

mod expand;
mod says;

use proc_macro::TokenStream;

/// Makes a tool of an async function: see `deedbook_agent::tool`.
#[proc_macro_attribute]
pub fn tool(says: TokenStream, function: TokenStream) -> TokenStream {
    let says = syn::parse_macro_input!(says as says::Says);
    let function = syn::parse_macro_input!(function as syn::ItemFn);
    expand::tool(&says, function).unwrap_or_else(|error| error.to_compile_error()).into()
}
