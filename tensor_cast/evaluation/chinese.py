"""The Chinese of every sentence that pages use, by its English."""

from __future__ import annotations

SENTENCES: dict[str, str] = {
    # Titles
    "Performance evaluation of {model} {spec} on {device}": "{model} {spec} 在 {device} 上的性能评测",
    "Video generation evaluation of {model} {spec} on {device}": "{model} {spec} 在 {device} 上的视频生成评测",
    "Image generation evaluation of {model} {spec} on {device}": "{model} {spec} 在 {device} 上的图像生成评测",
    "Test configuration": "测试配置",
    "Results": "测试结果",
    "Operator analysis": "算子分析",
    "Communication analysis": "通信分析",
    "Memory": "显存",
    "Key findings and advice": "关键发现与建议",
    "Appendix": "附录",
    # Headline
    "It does not fit into the memory of one device; the times are of a run that could not take place.": (
        "单卡显存放不下：下面的耗时属于一次无法实际进行的运行。"
    ),
    "The iterations do not agree: the figures below are the first one's.": (
        "各次迭代结果不一致：以下为第一次迭代的数据。"
    ),
    "One generation": "一次生成",
    "Decode step": "解码一步",
    "Prefill": "预填充",
    "{total} tokens/s on all {world} devices": "{world} 卡合计 {total} tokens/s",
    "Tokens/s a device": "单卡吞吐（tokens/s）",
    "Denoising step": "去噪一步",
    "Memory used": "显存占用",
    "{used} of {device}": "{used}，共 {device}",
    "Largest category": "占比最高的类别",
    "{share} of the time": "占总耗时的 {share}",
    "Likely range": "可能范围",
    "in four cases of five": "五次中有四次落在其中",
    "Likely range, in four cases of five": "可能范围（五次中有四次落在其中）",
    "Time between kernels": "算子间空隙",
    "Between kernels: {time}.": "算子间空隙：{time}。",
    "TPOT {time}": "TPOT {time}",
    "TTFT {time}, without queueing": "TTFT {time}（不含排队）",
    # Configuration
    "Model": "模型",
    "Device": "设备",
    "Parallel sizes": "并行规模",
    "Strategy": "并行策略",
    "Iterations": "迭代",
    "Parameters": "参数",
    "Parameter": "参数",
    "Value": "取值",
    "Origin": "来源",
    "given": "用户指定",
    "recommended": "采纳推荐",
    "default": "默认",
    "The appendix lists parameters that kept their defaults.": "保持默认值的参数见附录。",
    "one device": "单卡",
    "{kind}: recommended, and accepted by {how}": "{kind}：工具推荐，通过 {how} 采纳",
    "{kind}: chosen by the user": "{kind}：用户指定",
    "tensor parallelism": "张量并行",
    "data parallelism": "数据并行",
    "pipeline parallelism": "流水线并行",
    "expert parallelism": "专家并行",
    "CFG parallelism": "CFG 并行",
    "Ulysses sequence parallelism": "Ulysses 序列并行",
    # Metrics
    "Metric": "指标",
    "Execution time": "执行时间",
    "TTFT, without queueing": "TTFT（不含排队）",
    "TPOT": "TPOT",
    "One forward": "一次前向",
    "Stage {stage}": "阶段 {stage}",
    "text": "文本编码",
    "denoise": "去噪",
    "vae": "VAE",
    "Parameters of the model": "模型参数量",
    "{total:,}, active {active:,}": "{total:,}，激活 {active:,}",
    "Reached compute rate of a device": "单卡实际算力",
    "({share} of the BF16 peak)": "（BF16 峰值的 {share}）",
    "Reached memory rate of a device": "单卡实际访存带宽",
    "({share} of the peak)": "（峰值的 {share}）",
    "Fits": "放得下",
    "yes": "是",
    "no": "否",
    "Iteration": "迭代",
    "Time of the simulation": "仿真耗时",
    "Log": "日志",
    "All iterations, each in a fresh process, found the same figures to the last digit.": (
        "每次迭代都在全新进程中运行，所有数据完全一致。"
    ),
    # Operators
    "Time by category": "各类别耗时",
    "Share of each category, and of the time between kernels": "各类别和算子间空隙的占比",
    "Category": "类别",
    "Time {unit}": "耗时 {unit}",
    "Share": "占比",
    "Calls": "调用次数",
    "Longest kernel": "耗时最长的算子",
    "{time} of these run hidden behind others.": "其中 {time} 被其他算子掩盖。",
    "What bounds the time": "瓶颈归因",
    "Time by bound": "各瓶颈耗时",
    "Each kernel counts for what bounds it: matrix units, vector units, memory, links (comm), its fixed cost, or "
    "waiting": "每个算子计入其瓶颈：矩阵单元、向量单元、访存、通信链路、固定开销或等待",
    "matrix": "矩阵计算",
    "vector": "向量计算",
    "memory": "访存",
    "comm": "通信",
    "fixed": "固定开销",
    "wait": "等待",
    "analytic": "解析模型",
    "measured": "实测",
    "interpolated": "实测插值",
    "extrapolated": "实测外推",
    "Top kernels": "主要算子",
    "Longest kernels": "耗时最长的算子",
    "The longest kernels, all their calls together, in the colour of their category": (
        "耗时最长的算子（全部调用合计），颜色表示类别"
    ),
    "Kernel": "算子",
    "Part of the model": "模型部位",
    "Average us": "平均 us",
    "Bound by": "瓶颈",
    "Source": "来源说明",
    "{count} more kernels take {share} together.": "其余 {count} 个算子合计占 {share}。",
    # Communication
    "This strategy needs no collective.": "该并行策略不需要集合通信。",
    "Communication takes {share} of the time.": "通信占总耗时的 {share}。",
    "Time by collective": "各集合通信耗时",
    "Time of each kind of collective": "各类集合通信的耗时",
    "Collective": "集合通信",
    "Bytes a call": "单次数据量",
    "Group": "组大小",
    "Link": "链路",
    "GB/s of message": "消息带宽 GB/s",
    "Some of these run inside fused kernels and are hidden there.": "其中部分在融合算子内执行并被掩盖。",
    # Memory
    "weights": "权重",
    "KV cache": "KV 缓存",
    "state": "状态",
    "activations": "激活",
    "reserved": "预留",
    "available": "可用",
    "used": "已用",
    "the fullest stage beside": "最大阶段的其余占用",
    "Memory of the fullest device": "占用最高的设备的显存",
    "Memory of the fullest device, of {device}": "占用最高的设备的显存，共 {device}",
    "Use": "用途",
    "Size": "大小",
    "Of the device": "占设备比例",
    "Sizes in powers of 1000.": "单位按 1000 进制。",
    # Findings
    "It does not fit: the fullest device needs {needed} and has {device}.": (
        "显存放不下：占用最高的设备需要 {needed}，只有 {device}。"
    ),
    "Reading weights from memory bounds {share:.0%} of the time: the sequences of a batch share that cost, and "
    "narrower weights lower it.": (
        "{share:.0%} 的时间受限于从显存读取权重：同一批次的序列分摊这项开销，更窄的权重格式可以降低它。"
    ),
    "Reading the KV cache bounds {share:.0%} of the time: it grows with every sequence and its context; a narrower "
    "cache lowers it.": (
        "{share:.0%} 的时间受限于读取 KV 缓存：它随序列数和上下文长度增长，更窄的缓存格式可以降低它。"
    ),
    "The matrix units bound {share:.0%} of the time: a format with a higher rate, or more devices, help.": (
        "{share:.0%} 的时间受限于矩阵单元：改用算力更高的数据格式，或增加设备会有帮助。"
    ),
    "Costs of starting kernels bound {share:.0%} of the time: fewer, fused kernels or more work a kernel help.": (
        "{share:.0%} 的时间受限于算子启动等固定开销：融合算子、或让每个算子做更多工作会有帮助。"
    ),
    "In {share:.0%} of the time no kernel runs: the device waits for launches and for the host; fewer, fused kernels "
    "or more work a step help.": (
        "{share:.0%} 的时间没有算子在执行：设备在等待下发和主机；融合算子、或让每一步做更多工作会有帮助。"
    ),
    "Vector kernels take {share:.0%} of the time and are not fused with their neighbours.": (
        "向量算子占 {share:.0%} 的时间，且没有与相邻算子融合。"
    ),
    "Communication takes {share:.0%} of the time, most of it {longest}.": (
        "通信占 {share:.0%} 的时间，主要是 {longest}。"
    ),
    "In {share:.0%} of the time pipeline stages wait for one another: tensor parallelism in place of stages leaves "
    "fewer to wait for.": "{share:.0%} 的时间里流水线各级在互相等待：用张量并行代替流水线级，可以减少等待的对象。",
    "Attention takes {share:.0%} of the time and grows with the square of the tokens.": (
        "注意力占 {share:.0%} 的时间，并随 token 数的平方增长。"
    ),
    "The two forwards of classifier-free guidance run one after the other on all {world} devices.": (
        "CFG 的两次前向在全部 {world} 张卡上先后执行。"
    ),
    "{share:.0%} of the device's memory stays free: it has room for more sequences.": (
        "{share:.0%} 的显存空闲：可以容纳更多序列。"
    ),
    "No single bound or category stands out.": "没有突出的单一瓶颈或类别。",
    "No variant was run.": "没有运行任何变体。",
    "Advice": "建议",
    "None of the variants that the findings suggest is better.": "上述发现所建议的变体都没有带来改善。",
    "Variants that were run": "实际运行的变体",
    "Each line is a simulation of this evaluation with only the named flags changed.": (
        "每一行都是只改动所列参数后重新仿真的结果。"
    ),
    "`{change}`: throughput of a device {gain:+.1%}, time {time:+.1%}.": (
        "`{change}`：单卡吞吐 {gain:+.1%}，耗时 {time:+.1%}。"
    ),
    " It changes what the model computes: check the quality of its output.": "它会改变模型的计算内容：请检查输出质量。",
    " It then fits.": "改动后放得下。",
    "as evaluated": "本次评测",
    "refused: {reason}": "被拒绝：{reason}",
    "Change": "改动",
    "Time": "耗时",
    "Time, difference": "耗时变化",
    "Throughput of a device": "单卡吞吐变化",
    "Time of the variants": "各变体耗时",
    "Execution time of each variant; better ones in colour": "各变体的执行时间，有改善的以彩色显示",
    # Appendix
    "Commands": "命令",
    "This evaluation:": "本次评测：",
    "The simulation that each iteration ran:": "每次迭代运行的仿真：",
    "Parameters that kept their defaults": "保持默认值的参数",
    "Versions": "版本",
    "Figures of the device": "设备数据",
    "Figure": "数据项",
    "Unit": "单位",
    "A source that starts with assumed is a rule of this tool, not a measurement.": (
        "来源以 assumed 开头的数据由本工具的规则推得，并非实测。"
    ),
    # Comparison
    "Comparison of {count} evaluations of {models}": "{models} 的 {count} 次评测对比",
    "The workloads differ: compare the throughput of a device, not the times.": (
        "负载不同：请比较单卡吞吐，而不是耗时。"
    ),
    "Overview": "总览",
    "Evaluation": "评测",
    "Devices": "卡数",
    "Time to A": "耗时比 A",
    "Samples/hour a device": "单卡每小时样本数",
    "Throughput to A": "吞吐比 A",
    "{count:,.2f} an hour": "每小时 {count:,.2f}",
    "Throughput of a device: longer is better": "单卡吞吐，越长越好",
    "What differs in the configuration": "配置差异",
    "Nothing: all parameters are the same.": "没有差异：所有参数相同。",
    "By category": "按类别",
    "Time by category, all on one scale": "各类别耗时（同一比例）",
    "{letter} less A": "{letter} 减 A",
    "What makes the difference of {other} to {first}": "{other} 与 {first} 的差异来自哪里",
    "Nothing: every kernel takes the same time.": "没有差异：每个算子耗时相同。",
    "{other} takes {difference} {direction} than A; most of it is in {category} ({part}).": (
        "{other} 比 A {direction} {difference}，主要来自 {category}（{part}）。"
    ),
    "more": "多用",
    "less": "少用",
    "{count} more kernels differ by {difference} together.": "其余 {count} 个算子合计相差 {difference}。",
    "Difference {unit}": "差值 {unit}",
    "Ratio": "比值",
    "absent": "无",
    "Kernels that differ most": "差异最大的算子",
    "The kernels that differ most": "差异最大的算子",
    # Explanation
    "Measured against predicted: {model} {spec} on {device}": "实测与预测对照：{model} {spec}，{device}",
    "Measured": "实测",
    "Predicted": "预测",
    "predicted": "预测",
    "Difference": "差值",
    "measured is {ratio:.2f} x predicted": "实测为预测的 {ratio:.2f} 倍",
    "1. Whole step": "1. 整步",
    "Steps of the profile: {lengths}.": "采集到的各步：{lengths}。",
    "{count} kernels outside of every step are left out.": "不属于任何一步的 {count} 个算子未计入。",
    "Most of the difference sits in {name}: {difference}.": "差异主要来自 {name}：{difference}。",
    "{count} lines of the profile do not fit their header and are left out.": (
        "采集数据中有 {count} 行与表头不符，未计入。"
    ),
    "The profile holds kernels of training, {time} of them: an evaluation has none.": (
        "采集数据中有训练算子，共 {time}：评测中没有这些算子。"
    ),
    "step {step}": "第 {step} 步",
    "one of {count} equal steps": "{count} 个相同步骤之一",
    "2. Category": "2. 类别",
    "Measured and predicted by category": "各类别的实测与预测",
    "Where the time of a step goes": "一步的时间去向",
    "Measured {unit}": "实测 {unit}",
    "Predicted {unit}": "预测 {unit}",
    "Of the whole difference": "占总差异",
    "step": "整步",
    "between kernels": "算子间空隙",
    "overlapped": "重叠",
    "Between kernels the device waits for the host; overlapped time counts twice above and is taken off.": (
        "算子间空隙是设备等待主机下发的时间；重叠时间在上面计了两次，这里扣除。"
    ),
    "The longest times between kernels are in chapter 4.": "最长的算子间空隙见第 4 章。",
    "Chapter 3 has the kernels of {name} first.": "第 3 章先列出 {name} 的算子。",
    "3. Kernel and shape": "3. 算子与形状",
    "The kernels that differ most, measured above predicted": "差异最大的算子，上为实测，下为预测",
    "Shapes": "形状",
    "Verdict": "结论",
    "Calls measured": "实测次数",
    "us a call measured": "实测单次 us",
    "as predicted": "与预测一致",
    "slower": "比预测慢",
    "faster": "比预测快",
    "more calls": "调用更多",
    "fewer calls": "调用更少",
    "not predicted": "预测中没有",
    "not measured": "实测中没有",
    "Between kernels the device waits {time} a step, {share:.0%} of it, in {count} gaps: the host does not launch fast "
    "enough there, or waits for a result.": (
        "每步中设备在算子之间等待 {time}，占 {share:.0%}，共 {count} 处空隙：主机在这些位置下发不够快，或在等待结果。"
    ),
    "4. Between kernels": "4. 算子间空隙",
    "Gap us": "空隙 us",
    "After": "前一个算子",
    "Before": "后一个算子",
}
