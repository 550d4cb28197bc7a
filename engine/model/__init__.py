"""The Llama family of decoders over a paged KV cache, and its weights.

Nothing here imports torch until a submodule that needs it is imported: `config` doesn't,
`weights`, `decoder` and `attention` do.
"""
