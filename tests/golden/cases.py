"""The golden cases: small models of every family with ragged sizes, each with the options of its run."""


def options(**changes):
    """Keys are those of the command line."""
    values = {
        "max_steps": 8,
        "per_device_train_batch_size": 2,
        "gradient_accumulation_steps": 1,
        "max_seq_len": 48,
        "learning_rate": 3e-3,
        "lr_scheduler_type": "constant",
        "warmup_steps": 0,
        "weight_decay": 0.1,
        "adam_beta1": 0.9,
        "adam_beta2": 0.999,
        "adam_epsilon": 1e-8,
        "max_grad_norm": 0.0,
        "shuffle": False,
        "dtype": "f32",
    }
    assert changes.keys() <= values.keys()
    return values | changes


def rope_config(model_type, architecture, **changes):
    return {
        "architectures": [architecture],
        "model_type": model_type,
        "vocab_size": 257,
        "hidden_size": 64,
        "intermediate_size": 176,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "hidden_act": "silu",
        "max_position_embeddings": 512,
        "initializer_range": 0.02,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "rope_scaling": None,
        "attention_dropout": 0.0,
        "tie_word_embeddings": False,
        "use_cache": True,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "torch_dtype": "float32",
    } | changes


def llama(**changes):
    return rope_config("llama", "LlamaForCausalLM", **({"attention_bias": False, "mlp_bias": False} | changes))


def qwen2(**changes):
    extra = {"rms_norm_eps": 1e-6, "rope_theta": 1000000.0, "use_sliding_window": False, "sliding_window": None}
    return rope_config("qwen2", "Qwen2ForCausalLM", **(extra | changes))


def qwen3(**changes):
    extra = {"rms_norm_eps": 1e-6, "rope_theta": 1000000.0, "use_sliding_window": False, "sliding_window": None}
    return rope_config("qwen3", "Qwen3ForCausalLM", **(extra | {"attention_bias": False} | changes))


def gpt2(**changes):
    return {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "vocab_size": 307,
        "n_embd": 64,
        "n_head": 4,
        "n_layer": 2,
        "n_positions": 80,
        "n_inner": None,
        "activation_function": "gelu_new",
        "layer_norm_epsilon": 1e-5,
        "initializer_range": 0.02,
        "attn_pdrop": 0.0,
        "embd_pdrop": 0.0,
        "resid_pdrop": 0.0,
        "scale_attn_weights": True,
        "scale_attn_by_inverse_layer_idx": False,
        "reorder_and_upcast_attn": False,
        "tie_word_embeddings": True,
        "use_cache": True,
        "bos_token_id": 0,
        "eos_token_id": 0,
        "torch_dtype": "float32",
    } | changes


LLAMA3_SCALING = {
    # With theta 10000 and head_dim 16 one wavelength is kept, two are in between and five are stretched.
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}


def case(name, config, windows, tail, run, name_prefix=""):
    """The token stream holds `windows` windows and `tail` tokens more, too few for another window."""
    length = run["max_seq_len"]
    assert 0 <= tail < length
    return {
        "name": name,
        "config": config,
        "name_prefix": name_prefix,
        "options": run,
        "token_count": windows * length + 1 + tail,
        "windows": windows,
    }


CASES = [
    case("llama_tied", llama(tie_word_embeddings=True), 9, 20, options(max_seq_len=64, max_grad_norm=2.5)),
    case(
        "llama_gqa_llama3_rope",
        llama(
            vocab_size=389,
            hidden_size=96,
            intermediate_size=200,
            num_hidden_layers=3,
            num_attention_heads=6,
            rope_scaling=LLAMA3_SCALING,
        ),
        13,
        0,
        options(gradient_accumulation_steps=2, max_grad_norm=0.25, adam_beta2=0.95, learning_rate=2e-3),
    ),
    case(
        "llama_mha",
        llama(vocab_size=211, hidden_size=60, intermediate_size=130, num_attention_heads=5, num_key_value_heads=5),
        40,
        5,
        options(per_device_train_batch_size=3, max_seq_len=33),
    ),
    case(
        "llama_biases_linear_rope",
        llama(
            vocab_size=223,
            hidden_size=48,
            intermediate_size=112,
            num_attention_heads=6,
            attention_bias=True,
            mlp_bias=True,
            rope_scaling={"rope_type": "linear", "factor": 4.0},
        ),
        11,
        7,
        options(max_seq_len=41, max_grad_norm=2.0, gradient_accumulation_steps=2),
    ),
    case(
        "mistral_head_dim",
        rope_config(
            "mistral", "MistralForCausalLM", vocab_size=263, hidden_size=56, intermediate_size=150, head_dim=20,
            sliding_window=None,
        ),
        10,
        3,
        options(max_seq_len=39, max_grad_norm=0.5),
    ),
    case(
        "qwen2_tied",
        qwen2(
            vocab_size=503,
            hidden_size=72,
            intermediate_size=186,
            num_attention_heads=6,
            num_key_value_heads=3,
            tie_word_embeddings=True,
        ),
        17,
        11,
        options(max_seq_len=40, gradient_accumulation_steps=2, max_grad_norm=5.0),
    ),
    case(
        "qwen2_untied",
        qwen2(vocab_size=331, hidden_size=80, num_attention_heads=5, num_key_value_heads=1, num_hidden_layers=3),
        12,
        0,
        options(per_device_train_batch_size=3, max_seq_len=35, learning_rate=1e-3, adam_beta2=0.95),
    ),
    case(
        "qwen3_untied",
        qwen3(vocab_size=283, hidden_size=72, intermediate_size=190, head_dim=24),
        15,
        30,
        options(per_device_train_batch_size=3, gradient_accumulation_steps=2, max_seq_len=37, max_grad_norm=0.25),
    ),
    case(
        "qwen3_tied",
        qwen3(
            vocab_size=401,
            hidden_size=48,
            intermediate_size=100,
            num_hidden_layers=3,
            num_attention_heads=6,
            num_key_value_heads=3,
            head_dim=16,
            tie_word_embeddings=True,
        ),
        19,
        1,
        options(max_seq_len=52),
    ),
    case(
        "gpt2",
        gpt2(n_layer=3),
        14,
        2,
        options(max_seq_len=64, gradient_accumulation_steps=2, max_grad_norm=1.5),
        "transformer.",
    ),
    # Names without a prefix, as in the folder first published; an odd head size and an inner size of its own.
    case(
        "gpt2_bare_names",
        gpt2(vocab_size=241, n_embd=60, n_head=4, n_positions=33, n_inner=150),
        8,
        32,
        options(per_device_train_batch_size=3, max_seq_len=33, max_grad_norm=0.25, weight_decay=0.0),
    ),
    # Vocabularies of four reduction blocks, so that embedding and head can be cut in several tiles.
    case(
        "llama_untied_tiles",
        llama(vocab_size=3301),
        10,
        7,
        options(max_seq_len=56, max_grad_norm=0.5),
    ),
    case(
        "llama_tied_tiles",
        llama(vocab_size=3301, tie_word_embeddings=True),
        10,
        7,
        options(max_seq_len=56, gradient_accumulation_steps=2),
    ),
]
