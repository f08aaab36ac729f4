"""The Chinese of the simulator's warnings, which arrive as finished English sentences."""

from __future__ import annotations

import re
import string

WARNINGS: dict[str, str] = {
    # What a language model's request goes beyond, and what is assumed
    "{count} tokens a sequence are more than the {limit} that {model} is made for (max_position_embeddings).": (
        "每个序列 {count} 个 token，超过 {model} 的设计上限 {limit}（max_position_embeddings）。"
    ),
    "Config keys that the family {family} does not know, ignored: {keys}.": (
        "系列 {family} 不认识以下配置项，已忽略：{keys}。"
    ),
    "The config names no dtype: bfloat16 is assumed for hidden states and unquantised weights "
    "(--dtype sets another).": ("配置没有写明 dtype：隐藏状态和未量化的权重假设为 bfloat16（可用 --dtype 指定）。"),
    "The config says {dtype}: bfloat16 is assumed for hidden states and unquantised weights (--dtype sets another).": (
        "配置写的是 {dtype}：隐藏状态和未量化的权重假设为 bfloat16（可用 --dtype 指定）。"
    ),
    "The checkpoint is quantised ({format}), but linear layers are priced unquantised, as asked.": (
        "检查点是量化的（{format}），但按要求以未量化的线性层计价。"
    ),
    "The checkpoint's own quantisation is not known and left out: {problem}": (
        "检查点自身的量化格式未知，未计入：{problem}"
    ),
    "The config does not say whether MTP weights ship with the model: --num-mtp-tokens is not available for it.": (
        "配置没有说明模型是否附带 MTP 权重：该模型不能使用 --num-mtp-tokens。"
    ),
    "The {count} MTP layers are left out: the config does not say what they consist of.": (
        "未计入 {count} 个 MTP 层：配置没有说明其结构。"
    ),
    "Windowed layers are taken to have {heads} heads like the others: the config has no attention_other_setting.": (
        "窗口注意力层假设与其他层一样有 {heads} 个头：配置中没有 attention_other_setting。"
    ),
    "An audio encoder (audio_config) is left out.": "未计入音频编码器（audio_config）。",
    "The busiest of {ranks} expert-parallel ranks is taken to have {skew} times the mean to do, as vllm-ascend was "
    "seen to leave experts, which is assumed of {engine} too; {name} says how even yours are.": (
        "{ranks} 个专家并行 rank 中最忙的一个按平均值的 {skew} 倍计：这是观察到的 vllm-ascend 的专家分布，假设 "
        "{engine} 也如此；可用 {name} 说明实际的均衡程度。"
    ),
    "The busiest of {ranks} expert-parallel ranks is taken to have {skew} times the mean to do, as {engine} was seen "
    "to leave experts; {name} says how even yours are.": (
        "{ranks} 个专家并行 rank 中最忙的一个按平均值的 {skew} 倍计：这是观察到的 {engine} 的专家分布；可用 {name} "
        "说明实际的均衡程度。"
    ),
    "Not measured alone: {classes}; their error is taken from products without such weights.": (
        "没有单独实测：{classes}；误差取自不带这种权重的乘积。"
    ),
    "Assumed of {engine} on {device}, from runs of other engines or devices: {classes}.": (
        "对 {device} 上的 {engine} 所作的假设，依据其他引擎或设备的运行：{classes}。"
    ),
    # Drafting
    "Nothing drafts the {most} tokens a query that the decode step verifies: all of them count as accepted, an upper "
    "bound of its throughput ({one} or {other} draft them).": (
        "这个 decode 步为每个请求验证 {most} 个 token，却没有什么起草它们：全部按被接受计，吞吐是上限"
        "（起草用 {one} 或 {other}）。"
    ),
    "No acceptance rate is given for the drafted tokens: one token a query is counted each step, a lower bound.": (
        "没有给出草稿的接受率：每步每个请求按一个 token 计，是下限。"
    ),
    "A step that drafts {drafted} tokens verifies {verified} a query, but {name} is not {same}: as many tokens as it "
    "says are computed, and no more than that are accepted.": (
        "起草 {drafted} 个 token 的一步为每个请求验证 {verified} 个，但 {name} 不是 {same}：按它给出的数量计算，"
        "接受的也不会更多。"
    ),
    # Engines
    "Not measured: {engine}'s own time a step ({step}) and a request ({request}).": (
        "没有实测：{engine} 每一步（{step}）和每个请求（{request}）的自身耗时。"
    ),
    "Not measured: {engine}'s own time a step ({step}).": "没有实测：{engine} 每一步的自身耗时（{step}）。",
    "Not measured: {engine}'s own time a request ({request}).": "没有实测：{engine} 每个请求的自身耗时（{request}）。",
    # Options without effect
    "Without effect: {name}, as no layer is quantised to MXFP4 by a scheme.": (
        "不起作用：{name}，因为没有任何层按方案量化为 MXFP4。"
    ),
    "Without effect: {name}, as the scheme of linear layers other than experts leaves the output head unquantised.": (
        "不起作用：{name}，因为专家以外线性层的方案不量化输出头。"
    ),
    "Without effect: the scheme of routed experts, as the model has none.": (
        "不起作用：路由专家的量化方案，因为模型没有路由专家。"
    ),
    "Without effect: {name}, as no vision encoder of the model is modelled.": (
        "不起作用：{name}，因为该模型没有已建模的视觉编码器。"
    ),
    "Without effect: {name}, as the model has no dense MLP.": "不起作用：{name}，因为模型没有稠密 MLP。",
    "Without effect: {name}, as the model has no shared experts.": "不起作用：{name}，因为模型没有共享专家。",
    "Without effect: {name}, as one expert-parallel rank has all experts.": (
        "不起作用：{name}，因为一个专家并行 rank 就有全部专家。"
    ),
    "Without effect: {name}, as no kernel of the model may run beside another: it has no shared experts.": (
        "不起作用：{name}，因为模型没有共享专家，没有算子可以与其他算子并行。"
    ),
    # Measurements
    "No measurement near this: {classes} on {device}.": "附近没有实测（{device}）：{classes}。",
    "Kernel times of {device} rest on measurements of {others}.": "{device} 的算子耗时依据 {others} 的实测。",
    "One of the {classes} takes {time}, longer than all that were measured (at most {longest}).": (
        "{classes}中有一个耗时 {time}，超出实测范围（实测最长 {longest}）。"
    ),
    # Generations
    "Not priced, for want of a known config: {parts}.": "未计价（配置未知）：{parts}。",
    "Config keys that are not known, ignored: {keys}.": "不认识以下配置项，已忽略：{keys}。",
    "{pipeline} has one denoiser: there is nothing to offload.": "{pipeline} 只有一个去噪网络：没有可以卸载的。",
    "{pipeline} has one denoiser: the flow shift changes nothing.": (
        "{pipeline} 只有一个去噪网络：flow shift 不起作用。"
    ),
    "The VAE of {pipeline} never works in tiles: --no-vae-tiling changes nothing.": (
        "{pipeline} 的 VAE 从不分块运行：--no-vae-tiling 不起作用。"
    ),
    "The profile of {device} has no costs of FlashAttention-2 apart: --attention-backend changes nothing.": (
        "{device} 的画像没有单独的 FlashAttention-2 开销：--attention-backend 不起作用。"
    ),
    "--mxfp4-group-size belongs to MXFP4: {scheme} has no groups of weights.": (
        "--mxfp4-group-size 属于 MXFP4：{scheme} 不对权重分组。"
    ),
    "{index} names no pipeline class: taken as one from text to video.": (
        "{index} 没有给出 pipeline 类：按文生视频处理。"
    ),
    "{index} names no pipeline class: taken as one from text to image.": (
        "{index} 没有给出 pipeline 类：按文生图处理。"
    ),
    "The step cache's range begins at step {first}, after the last: nothing is reused.": (
        "步缓存的范围从第 {first} 步开始，已在最后一步之后：没有任何复用。"
    ),
    "What the text encoder's vision tower takes for given images is not priced.": (
        "未计入文本编码器的视觉塔处理所给图像的耗时。"
    ),
    "The configs name no flow shift: {shift} is assumed, as in Wan2.2's diffusers form, to share out the steps between "
    "the two denoisers (--flow-shift); their forwards cost the same.": (
        "配置没有给出 flow shift：假设为 {shift}（与 Wan2.2 的 diffusers 形式相同），用来在两个去噪网络之间分配步数"
        "（--flow-shift）；两者一次前向的开销相同。"
    ),
    "The step cache's range ends at {last}, after the last step.": "步缓存的范围止于 {last}，已在最后一步之后。",
}
"""A sentence with its figures as fields; of these kernels and what is assumed are translated too."""

_KERNELS: dict[str, str] = {
    "matrix products of experts": "专家矩阵乘",
    "matrix products": "矩阵乘",
    "prefill attention kernels": "prefill 注意力算子",
    "decode attention kernels": "decode 注意力算子",
    "vector kernels": "向量算子",
    "collectives": "集合通信",
    "convolutions": "卷积",
}
_VARIANTS: dict[str, str] = {
    r"(.+) with a recurrent state": "带循环状态的 {}",
    r"unmasked (.+)": "无掩码的 {}",
    r"FlashAttention-2's (.+)": "FlashAttention-2 的 {}",
    r"elementwise (.+)": "逐元素{}",
    r"(\w+) (.+) with (\w+) weights": "{2} 权重的 {0} {1}",
    r"(INT8|INT4|FP8|FP4|FLOAT\w*) (.+)": "{} {}",
}
"""Kernels as ``class_words`` of ``tensor_cast.unmeasured`` names them."""
_ASSUMED: dict[str, str] = {
    "assumed: 0; nothing is measured": "假设为 0；没有实测",
    "assumed: as vllm-ascend": "假设与 vllm-ascend 相同",
}


def translated(warning: str) -> str:
    """``warning`` in Chinese, or as it is where it is not known."""
    for english, chinese in WARNINGS.items():
        if (match := re.fullmatch(_pattern(english), warning, re.DOTALL)) is not None:
            return chinese.format(**{name: _field(name, text) for name, text in match.groupdict().items()})
    return warning


def _field(name: str, text: str) -> str:
    if name == "classes":
        return "、".join(map(_kernels, text.split(", ")))
    return _ASSUMED.get(text, text)


def _kernels(words: str) -> str:
    if words in _KERNELS:
        return _KERNELS[words]
    for english, chinese in _VARIANTS.items():
        if match := re.fullmatch(english, words):
            return chinese.format(*(_KERNELS.get(part, part) for part in match.groups()))
    return words


def _pattern(sentence: str) -> str:
    parts = string.Formatter().parse(sentence)
    return "".join(re.escape(text) + (f"(?P<{name}>.+?)" if name else "") for text, name, _, _ in parts)
