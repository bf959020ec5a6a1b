"""Every configuration key, once, with its default, unit and meaning.

The defaults are the reference's (arXiv 2606.02031, sections 4 and 5, tables 6 and 7);
a config file changes what its experiment changes, `:tiny` shrinks it to one CPU.
"""

from typing import Any

from ml_collections import ConfigDict


def get_config() -> Any:  # a ConfigDict, whose keys type checkers do not know
    """The locked tree of all keys."""
    config = ConfigDict()
    config.stage = "grpo"  # grpo | sft
    config.seed = 0
    config.init_from = ""  # workdir or checkpoint folder to start from; "" = model.path
    config.init_command = ""  # the command that makes it, named if it is missing

    config.model = ConfigDict()
    config.model.path = "Qwen/Qwen3-VL-4B-Thinking"  # a checkpoint folder or a Hub id
    config.model.dtype = "bfloat16"  # compute; parameters stay float32
    config.model.remat = True  # recompute each layer's activations in the backward pass
    config.model.attention = "xla"  # xla | pallas (TPU kernels, not yet run on one)
    config.model.train_vision = True  # False = the vision tower is frozen

    config.tasks = ConfigDict()
    config.tasks.suite = "file"  # file | miniwob | fake (scripted pages, no browser)
    config.tasks.path = ""  # suite file: JSONL or upstream's parquet
    config.tasks.names = ()  # suite miniwob: page names
    config.tasks.train_seeds = (0, 1_000_000)  # suites miniwob, fake: half-open range
    config.tasks.heldout_seeds = (1_000_000, 1_001_000)
    config.tasks.max_turns = 15  # horizon, in replies
    config.tasks.floor = 1.0  # least chance of a task at its turn; 1 = no curriculum
    config.tasks.decay = 0.98  # what the curriculum knows, after each version
    # Patterns of ids of tasks that no group is opened on, such as "shop/*".
    config.tasks.blocklist = ()

    config.web = ConfigDict()
    config.web.width_px = 1280
    config.web.height_px = 1000
    config.web.chromium = ""  # "" = /usr/bin/chromium, else Playwright's own
    config.web.navigate_timeout_s = 20.0
    config.web.action_timeout_s = 10.0
    config.web.capture_timeout_s = 5.0
    config.web.close_timeout_s = 15.0
    config.web.settle_cap_s = 3.0  # longest wait for a page to become quiet
    config.web.settle_quiet_s = 0.15  # quiet for so long = settled
    config.web.wait_cap_s = 10.0  # longest that the tool `wait` is obeyed
    config.web.recycle_episodes = 2000  # a Chromium is replaced after so many
    config.web.tape = ""  # "" | record | replay: sites as HAR files, see web/tape.py
    config.web.tape_folder = ""  # where they are
    config.web.memory_limit_mb = 0  # of one Chromium, replaced above it; 0 = none
    config.web.verify_tls = True  # False = sites with wrong certificates are opened
    config.web.go_forward = False  # True = the policy has the tool `go_forward` too
    config.web.feedback = True  # False = the ablation without feedback lines

    config.agent = ConfigDict()
    config.agent.prompt = "full"  # full | short
    config.agent.history = "full"  # full | hide_thinking | action_only
    config.agent.context_screenshots = 1  # K, newest screenshots in the prompt
    config.agent.open_think = True  # the prompt ends with an opening <think>
    config.agent.lenient = False  # True = mend malformed replies, not for RL
    config.agent.parse_failures = 3  # in a row, end the episode as format_error

    config.rollout = ConfigDict()
    config.rollout.workers = 8  # browser-worker actors
    config.rollout.contexts = 8  # episodes at once in each
    config.rollout.task_timeout_s = 600.0
    config.rollout.lease_timeout_s = 900.0
    config.rollout.retries = 2  # of a void slot, on a fresh browser
    config.rollout.canary_url = ""  # tried before a site is blamed; "" = none is

    config.sample = ConfigDict()
    config.sample.temperature = 0.8
    config.sample.response_tokens = 1024  # longest reply
    config.sample.context_tokens = 32_768  # longest prompt + reply
    # Rows of the cache: episodes that find theirs again, and as many replies at once.
    # One of 32k tokens of the 4B model takes 4.8 GB, and as much again as it speaks.
    config.sample.slots = 8
    config.sample.prompt_buckets = (2048, 4096, 8192, 16_384, 32_768)  # of a row, seen
    config.sample.timeout_s = 120.0
    config.sample.static = False  # True = replies equal to the bit, at a price; K < 4

    config.reward = ConfigDict()
    config.reward.format_error = -1.0  # value of an episode that ended so
    # Parts and their weights, see rewards/combine.py; one of weight 0 is told only.
    config.reward.weights = ConfigDict({"outcome": 1.0})
    config.reward.judge = ConfigDict()
    config.reward.judge.base_url = ""  # OpenAI-compatible endpoint; "" = none
    config.reward.judge.workdir = ""  # or a judge of our own, trained there; "" = none
    config.reward.judge.protocol = "single"  # single | webjudge | webvoyager | opagent
    config.reward.judge.prompt = "full"  # full | short
    config.reward.judge.model = "gpt-4.1"
    config.reward.judge.api_key_env = "OPENAI_API_KEY"  # variable, not key
    config.reward.judge.timeout_s = 30.0  # of one try of one call
    config.reward.judge.tries = 3  # seeds tried before a verdict is void
    config.reward.judge.screenshots = 3  # newest ones, and the final page; -1 = no page
    config.reward.judge.relevance = (
        3  # webjudge: least score of a screenshot that counts
    )
    config.reward.judge.concurrency = 8  # calls at once, of a worker
    config.reward.judge.rest_s = 30.0  # after 5 failures in a row; then one is tried
    config.reward.judge.usd_per_million_in = 2.0  # price of prompt tokens
    config.reward.judge.usd_per_million_out = 8.0
    config.reward.judge.canaries = ""  # workdir of labelled trajectories; "" = none
    config.reward.judge.canaries_every = 10  # iterations
    # A second opinion on this share of the judged episodes, and the judge's on that of
    # those that a checker has scored; 0 = none.
    config.reward.judge.second_share = 0.0
    config.reward.judge.second_model = ""  # of the endpoint; "" = the same judge
    config.reward.judge.second_protocol = ""  # "" = the same
    # With checkers, canaries and the second opinion; below it the run pauses.
    config.reward.judge.least_kappa = -1.0
    config.reward.judge.most_false_positives = 1.0  # rate above which it pauses

    config.algo = ConfigDict()
    config.algo.loss = "mm_grpo"  # mm_grpo | mt_sft
    config.algo.group = 5  # G, episodes a group
    config.algo.groups = 48  # B, groups an iteration
    config.algo.eta = 1  # staleness bound, in iterations; 0 = synchronous
    config.algo.advantage = "mean_std"  # mean_std | mean | rloo
    config.algo.weighting = "turn_mean"  # traj_mean | constant_k | token_mean
    config.algo.constant_k = 0.0  # tokens; 0 = response_tokens x max_turns
    config.algo.clip_low = 0.2
    config.algo.clip_high = 0.28
    config.algo.kl = 0.0  # weight of k3 against the behaviour policy; 0 = off
    config.algo.entropy = 0.0  # weight of the entropy bonus; 0 = off
    config.algo.old_logp = "behaviour"  # behaviour | proximal
    config.algo.ppo_epochs = 2
    config.algo.minibatch_turns = 256  # turns an optimizer step
    config.algo.iterations = 90  # of MM-GRPO
    config.algo.starve_batches = 10  # B groups filtered so often in a row = stop
    config.algo.shuffle_rewards = False  # control: permuted in each group

    config.sft = ConfigDict()
    config.sft.data = ()  # workdirs that hold trajectories
    config.sft.weights_k = 4.0  # b = 1 - 10^-k of the effective number
    config.sft.abilities = ("acting", "grounding", "planning")
    config.sft.shares = (1.0, 0.0, 0.0)  # of the rows drawn, by ability
    config.sft.steps = 72
    config.sft.rows = 128  # rows an optimizer step

    config.optim = ConfigDict()
    config.optim.name = "adamw"  # adamw | muon (muon for matrices, adamw for the rest)
    config.optim.lr_peak = 1e-6
    config.optim.lr_rest = 0.0  # muon: rate of the other parameters; 0 = lr_peak / 2
    config.optim.schedule = "constant"  # constant | cosine | trapezoid
    config.optim.warmup_steps = 0
    config.optim.decay_share = 0.3  # trapezoid: the last part, linear to 0
    config.optim.b1 = 0.9
    config.optim.b2 = 0.98
    config.optim.weight_decay = 0.1
    config.optim.clip_norm = 1.0

    config.batch = ConfigDict()
    config.batch.layout = "tree"  # tree: a trajectory's turns share its trunk | turn
    config.batch.rows = 8  # lines a micro-batch, a multiple of data x fsdp
    config.batch.lengths = (16_384, 32_768, 65_536)  # padded line lengths
    config.batch.loss_tokens = 8192  # padded loss positions a line

    config.mesh = ConfigDict()
    config.mesh.data = 1
    config.mesh.fsdp = -1  # -1 = all devices that are left
    config.mesh.tp = 1

    config.cluster = ConfigDict()
    config.cluster.address = ""  # "" = start Ray here; "auto" = join a running cluster
    config.cluster.platform = ""  # "" = an accelerator is wanted; "cpu" = none is
    config.cluster.learner_processes = 1  # as a rule one a host
    config.cluster.learner_devices = 0  # of each of them; 0 = all but serving's
    # Each replica serves whole groups. Several keep the newest weights in Ray's object
    # store, so that one that dies alone gets them when it is back.
    config.cluster.serving_replicas = 1
    config.cluster.serving_devices = 1  # of each of them
    config.cluster.colocated = False  # True = serving is in the learner's process
    config.cluster.peak_tflops = 0.0  # of a device, for `mfu`; 0 = as the kind is known
    config.cluster.usd_per_hour = (
        0.0  # of the machines, for `usd_per_success`; 0 = none
    )

    config.checkpoint = ConfigDict()
    config.checkpoint.every = 5  # iterations (grpo) or steps (sft)
    config.checkpoint.keep = 2

    config.evaluate = ConfigDict()
    config.evaluate.episodes = 400  # held-out tasks
    config.evaluate.samples = 1  # sampled episodes of each
    config.evaluate.greedy = True  # also one greedy episode of each
    return config.lock()
