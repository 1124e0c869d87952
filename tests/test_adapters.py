"""The adapters give the right weights in the frameworks: examples, laws, and the page's blocks.

`make test` installs the frameworks into a separate folder, because they would add their own
packages to every other test. Therefore this file runs twice: pytest collects only the first part,
which runs the second part, `INSIDE`, in a process whose path includes the frameworks. Nothing is
skipped once the folder exists.
"""

import gc
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import fedavot as fa

ROOT = Path(__file__).parents[1]
ADAPTERS = ROOT / "examples" / "adapters"
PAGE = ROOT / "docs" / "adapters.md"
FRAMEWORKS = Path(sys.prefix) / "adapters"
INSIDE = os.environ.get("FEDAVOT_TESTS") == "inside the frameworks"

EXAMPLES = ["nvflare_aggregator.py", "appfl_aggregator.py", "pfl_weighting.py"]
ROW = re.compile(r"(\w+) +\[(.*?)\](?: gap (.*)%)?")

needs_frameworks = pytest.mark.skipif(
    not FRAMEWORKS.is_dir(), reason="the frameworks are not installed: make .venv/ready-adapters"
)


def run(*arguments, folder, **environment):
    """Run the interpreter with the frameworks and the adapters on its path."""
    path = os.pathsep.join([str(FRAMEWORKS), str(ADAPTERS)])
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": path} | environment,
        capture_output=True,
        text=True,
        check=False,
    )


if not INSIDE:

    @needs_frameworks
    @pytest.mark.slow
    @pytest.mark.parametrize("name", EXAMPLES)
    def test_the_example_is_nearer_to_the_importance_and_prints_what_the_page_shows(name, tmp_path):
        done = run(ADAPTERS / name, folder=tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr
        rows = {}
        for label, numbers, gap in ROW.findall(done.stdout):
            rows[label] = np.array(numbers.split(), dtype=float), gap
        importance, _ = rows.pop("importance")
        gaps = {}
        for label, (weights, gap) in rows.items():
            assert weights.sum() == pytest.approx(1, abs=0.002)  # three decimals are printed
            gaps[label] = np.abs(weights - importance).sum() / 2
            assert gaps[label] == pytest.approx(float(gap) / 100, abs=0.002)
        (ours,) = [label for label in gaps if label.startswith("FedAVOT")]
        (plain,) = [label for label in gaps if not label.startswith("FedAVOT")]
        assert gaps[ours] < gaps[plain] / 2
        shown = "".join(f"    {line}\n" for line in done.stdout.splitlines())
        assert shown in PAGE.read_text(encoding="utf-8")

    @needs_frameworks
    def test_the_laws_hold_inside_the_frameworks(tmp_path):
        # Warnings of the frameworks are theirs.
        done = run(
            *("-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", "filterwarnings="),
            *("--rootdir", ROOT, "-c", ROOT / "pyproject.toml", Path(__file__).resolve()),
            folder=tmp_path,
            FEDAVOT_TESTS="inside the frameworks",
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert re.search(r"^\d+ passed in", done.stdout, re.MULTILINE), done.stdout

    def test_every_requirement_is_one_exact_version():
        text = (ADAPTERS / "requirements.txt").read_text(encoding="utf-8")
        lines = [line for line in text.splitlines() if not line.startswith("#")]
        assert lines
        assert [line for line in lines if not re.fullmatch(r"[\w-]+==[\w.]+", line)] == []

    def test_the_page_and_the_requirements_name_the_same_versions():
        text = (ADAPTERS / "requirements.txt").read_text(encoding="utf-8")
        page = PAGE.read_text(encoding="utf-8")
        for name in ("nvflare", "appfl", "pfl"):
            (version,) = re.findall(rf"^{name}==(.*)$", text, re.MULTILINE)
            assert f"{name} {version}" in page


IMPORTANCE = {"ann": 5.0, "bob": 3.0, "cy": 2.0}
NAMES = list(IMPORTANCE)
SHARES = [0.5, 0.3, 0.2]
COHORTS = [[0, 1, 2], [2, 1], [1], [0, 2], [2, 1, 0], [1, 2]]
SINGLE = 1e-6
"""APPFL's models are single precision."""


def units(cohort):
    """Return what each member sends: one in its own coordinate."""
    return {NAMES[number]: np.eye(len(NAMES))[number] for number in cohort}


def expected(weigh):
    """Return the weights of every cohort, zero for the absent."""
    rows = np.zeros((len(COHORTS), len(NAMES)))
    for row, cohort in zip(rows, COHORTS, strict=True):
        row[cohort] = weigh(cohort)
    return rows


def with_levels(tmp_path):
    """Return an alignment of two levels, and where it was saved."""
    law = fa.Cohorts([[0], [1, 2], [0, 1]], [0.5, 0.25, 0.25], clients=NAMES)
    alignment = fa.align([0.1, 0.6, 0.3], law)
    assert alignment.levels.any()
    alignment.save(tmp_path / "alignment.json")
    return alignment, str(tmp_path / "alignment.json")


if INSIDE:
    import torch
    from appfl.misc.utils import create_instance_from_file
    from appfl_aggregator import FedAVOTAggregator as ForAPPFL
    from nvflare.app_common.abstract.fl_model import FLModel, ParamsType
    from nvflare.app_common.utils.fl_model_utils import FLModelUtils
    from nvflare_aggregator import FedAVOTAggregator as ForNVFLARE
    from omegaconf import OmegaConf
    from pfl.context import UserContext
    from pfl.metrics import Metrics
    from pfl.stats import MappedVectorStatistics
    from pfl_weighting import FedAVOTWeighting

    gc.freeze()  # APPFL collects garbage at every turn, and need not look at all that was imported

    def replied(aggregator, cohort, kind=ParamsType.DIFF, metrics=None):
        aggregator.reset_stats()
        for name, unit in units(cohort).items():
            model = FLModel(kind, {"total": unit}, meta={"client_name": name})
            model.metrics = None if metrics is None else metrics[name]
            aggregator.accept_model(model)
        return aggregator.aggregate_model()

    def test_nvflare_gives_the_weights_of_the_online_aligner():
        aggregator = ForNVFLARE(IMPORTANCE, step=0.7)
        given = [replied(aggregator, cohort).params["total"] for cohort in COHORTS]
        np.testing.assert_allclose(
            given,
            expected(fa.OnlineAligner(SHARES, softness=0, around="equal", step=0.7).observe),
            atol=1e-12,
        )

    def test_nvflare_gives_the_weights_of_an_alignment_with_levels(tmp_path):
        alignment, path = with_levels(tmp_path)
        aggregator = ForNVFLARE(IMPORTANCE, alignment=path)
        given = [replied(aggregator, cohort).params["total"] for cohort in COHORTS]
        np.testing.assert_allclose(given, expected(alignment.weights), atol=1e-12)

    def test_nvflare_looks_for_an_alignment_on_the_server_only(tmp_path):
        aggregator = ForNVFLARE(IMPORTANCE, alignment=str(tmp_path / "on-the-server.json"))
        with pytest.raises(FileNotFoundError, match=r"on-the-server.json"):
            replied(aggregator, [0, 1])

    def test_nvflare_refuses_an_alignment_for_fewer_sites(tmp_path):
        _, path = with_levels(tmp_path)
        with pytest.raises(ValueError, match="dee"):
            replied(ForNVFLARE({**IMPORTANCE, "dee": 1.0}, alignment=path), [0, 1])

    @pytest.mark.parametrize("kind", list(ParamsType))
    def test_nvflare_says_whether_the_average_is_a_model_or_a_difference(kind):
        assert replied(ForNVFLARE(IMPORTANCE), [0, 1], kind).params_type == kind

    def test_nvflare_weighs_metrics_as_models():
        aggregator = ForNVFLARE(IMPORTANCE)
        replied(aggregator, [0, 2])
        metrics = {name: {"loss": float(len(name)), "note": "fine"} for name in NAMES}
        result = replied(aggregator, [0, 2], metrics=metrics)
        loss = result.params["total"] @ [len(name) for name in NAMES]
        assert result.metrics == {"loss": pytest.approx(loss)}

    def test_nvflare_has_no_metrics_where_a_site_has_none():
        metrics = {"ann": {"loss": 1.0}, "cy": None}
        assert replied(ForNVFLARE(IMPORTANCE), [0, 2], metrics=metrics).metrics is None

    def test_nvflare_leaves_the_model_as_it_is_when_nobody_replied():
        model = FLModel(ParamsType.FULL, {"total": np.ones(3)})
        updated = FLModelUtils.update_model(model, replied(ForNVFLARE(IMPORTANCE), []))
        np.testing.assert_array_equal(updated.params["total"], np.ones(3))

    def test_nvflare_refuses_a_site_without_importance():
        model = FLModel(params={"total": np.ones(3)}, meta={"client_name": "eve"})
        with pytest.raises(ValueError, match="'eve' has no importance"):
            ForNVFLARE(IMPORTANCE).accept_model(model)

    def test_nvflare_refuses_models_among_differences():
        aggregator = ForNVFLARE(IMPORTANCE)
        for name, kind in zip(NAMES, ParamsType, strict=False):
            aggregator.accept_model(FLModel(kind, {"x": np.ones(1)}, meta={"client_name": name}))
        with pytest.raises(ValueError, match="models and others differences"):
            aggregator.aggregate_model()

    def test_nvflare_refuses_the_controller_that_does_not_name_senders():
        with pytest.raises(NotImplementedError, match="FedAvg controller"):
            ForNVFLARE(IMPORTANCE).accept(None, None)

    def averaged(aggregator, cohort, **options):
        models = {
            name: {"total": torch.tensor(unit, dtype=torch.float32)}
            for name, unit in units(cohort).items()
        }
        return aggregator.aggregate(models, **options)["total"].numpy()

    def for_appfl(**configs):
        return ForAPPFL(aggregator_configs=OmegaConf.create({"importance": IMPORTANCE} | configs))

    @pytest.mark.parametrize("optimize_memory", [True, False])
    def test_appfl_gives_the_weights_of_the_online_aligner(optimize_memory):
        aggregator = for_appfl(step=0.7, optimize_memory=optimize_memory)
        given = [averaged(aggregator, cohort) for cohort in COHORTS]
        np.testing.assert_allclose(
            given,
            expected(fa.OnlineAligner(SHARES, softness=0, around="equal", step=0.7).observe),
            atol=SINGLE,
        )

    def test_appfl_gives_the_weights_of_an_alignment_with_levels(tmp_path):
        alignment, path = with_levels(tmp_path)
        aggregator = for_appfl(alignment=path)
        given = [averaged(aggregator, cohort) for cohort in COHORTS]
        np.testing.assert_allclose(given, expected(alignment.weights), atol=SINGLE)

    def test_appfl_refuses_an_alignment_for_fewer_clients(tmp_path):
        _, path = with_levels(tmp_path)
        with pytest.raises(ValueError, match="dee"):
            for_appfl(importance={**IMPORTANCE, "dee": 1.0}, alignment=path)

    def test_appfl_weighs_all_chunks_of_a_round_alike():
        aggregator, aligner = (
            for_appfl(step=0.7),
            fa.OnlineAligner(SHARES, softness=0, around="equal", step=0.7),
        )
        for cohort in COHORTS[:3]:
            weights = aligner.observe(cohort)
            for chunk in range(2):
                same = dict.fromkeys(units(cohort), chunk)
                keys = {name: ["total"] for name in units(cohort)}
                given = averaged(aggregator, cohort, _chunk_idx=same, _chunk_keys=keys)
                np.testing.assert_allclose(given[cohort], weights, atol=SINGLE)

    def test_appfl_refuses_chunks_of_other_clients():
        aggregator = for_appfl()
        averaged(aggregator, [0, 1])
        with pytest.raises(ValueError, match="chunk"):
            averaged(aggregator, [0, 2], _chunk_idx={"ann": 1, "cy": 1})

    def test_appfl_takes_no_notice_of_a_size_announced_between_two_chunks():
        aggregator = for_appfl()
        keys = {"ann": ["total"], "bob": ["total"]}
        averaged(aggregator, [0, 1], _chunk_idx={"ann": 0, "bob": 0}, _chunk_keys=keys)
        aggregator.set_client_sample_size("ann", 10**9)
        given = averaged(aggregator, [0, 1], _chunk_idx={"ann": 1, "bob": 1}, _chunk_keys=keys)
        np.testing.assert_allclose(given, [0.5, 0.5, 0], atol=SINGLE)

    def test_appfl_refuses_a_client_without_importance():
        with pytest.raises(ValueError, match=r"clients \['eve'\] have no importance"):
            for_appfl().aggregate({"eve": {"total": torch.zeros(1)}})

    def test_appfl_refuses_secure_aggregation():
        with pytest.raises(ValueError, match="use_secure_agg"):
            for_appfl(use_secure_agg=True)

    def round_of(weighting, cohort):
        """Return the average that pfl makes of a round, and what it then hands to the server."""
        total = None
        for name, unit in zip(map(NAMES.__getitem__, cohort), np.eye(3)[cohort], strict=True):
            context = UserContext(num_datapoints=1, seed=0, user_id=name, metrics=Metrics())
            stats = MappedVectorStatistics({"total": unit.copy()})
            stats, _ = weighting.postprocess_one_user(stats=stats, user_context=context)
            total = stats if total is None else total + stats
        stats, _ = weighting.postprocess_server(
            stats=total, central_context=None, aggregate_metrics=Metrics()
        )
        stats.average()
        return stats["total"]

    def test_pfl_gives_the_weights_of_the_online_aligner_from_one_number_per_user():
        weighting = FedAVOTWeighting(
            fa.OnlineAligner(SHARES, softness=0, around="equal", step=0.7, clients=NAMES)
        )
        given = [round_of(weighting, cohort) for cohort in COHORTS]
        np.testing.assert_allclose(
            given,
            expected(fa.OnlineAligner(SHARES, softness=0, around="equal", step=0.7).observe),
            atol=1e-12,
        )

    def test_pfl_counts_a_user_as_often_as_it_was_drawn():
        aligner = fa.OnlineAligner(SHARES, softness=0, around="equal", step=0.7, clients=NAMES)
        given = [round_of(FedAVOTWeighting(aligner), cohort) for cohort in [[0, 0, 1]] * 5]
        np.testing.assert_allclose(aligner.realised, np.mean(given, axis=0), atol=1e-12)

    def test_pfl_gives_the_weights_of_an_alignment_of_one_level():
        alignment = fa.align(SHARES, fa.IndependentClients([0.7, 0.8, 0.9], clients=NAMES))
        weighting = FedAVOTWeighting(alignment)
        given = [round_of(weighting, cohort) for cohort in COHORTS]
        np.testing.assert_allclose(given, expected(alignment.weights), atol=1e-12)

    def test_pfl_refuses_levels(tmp_path):
        with pytest.raises(ValueError, match=r"no product form"):
            FedAVOTWeighting(with_levels(tmp_path)[0])

    def test_pfl_refuses_the_variance_objective():
        law = fa.Cohorts([[0, 1], [1, 2], [0, 1, 2]], [0.3, 0.3, 0.4])
        with pytest.raises(ValueError, match=r"no product form"):
            FedAVOTWeighting(fa.align(SHARES, law, objective="variance", clients=NAMES))

    def test_pfl_refuses_importance_zero():
        with pytest.raises(ValueError, match=r"no product form"):
            FedAVOTWeighting(fa.OnlineAligner([0.5, 0.5, 0.0], step=1.0, clients=NAMES))

    def test_pfl_refuses_an_aligner_without_names():
        with pytest.raises(ValueError, match=r"clients=\[...\]"):
            FedAVOTWeighting(fa.OnlineAligner(SHARES, step=1.0))

    def test_pfl_refuses_a_user_without_importance():
        context = UserContext(num_datapoints=1, seed=0, user_id="eve", metrics=Metrics())
        weighting = FedAVOTWeighting(fa.OnlineAligner(SHARES, step=1.0, clients=NAMES))
        with pytest.raises(ValueError, match=r"user 'eve' has no importance"):
            weighting.postprocess_one_user(stats=None, user_context=context)

    def test_pfl_refuses_a_round_that_was_weighed_elsewhere_too():
        weighting = FedAVOTWeighting(fa.OnlineAligner(SHARES, step=1.0, clients=NAMES))
        context = UserContext(num_datapoints=1, seed=0, user_id="ann", metrics=Metrics())
        stats = MappedVectorStatistics({"total": np.ones(3)})
        weighting.postprocess_one_user(stats=stats, user_context=context)
        stats.reweight(7.0)
        with pytest.raises(RuntimeError, match=r"7\.0.*1\.0"):
            weighting.postprocess_server(
                stats=stats, central_context=None, aggregate_metrics=Metrics()
            )

    def blocks(language):
        return re.findall(rf"```{language}\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)

    def test_every_block_of_the_page_that_needs_a_framework_runs(tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        (tmp_path / "client.py").write_text("")
        found = blocks("py")
        assert len(found) == 2
        for block in found:
            exec(compile(block, str(PAGE), "exec"), {})

    def test_appfl_loads_the_adapter_as_the_page_says_and_then_wants_the_model():
        (text,) = blocks("yaml")
        configs = OmegaConf.create(text).server_configs
        aggregator = create_instance_from_file(
            ROOT / configs.aggregator_path,
            configs.aggregator,
            aggregator_configs=configs.aggregator_kwargs,
            logger=None,
        )
        with pytest.raises(ValueError, match=r"Model is not provided"):
            aggregator.get_parameters()
        aggregator.model = torch.nn.ParameterDict({"total": torch.full((3,), 7.0)})
        assert aggregator.get_parameters()["total"].tolist() == [7.0] * 3
        np.testing.assert_allclose(averaged(aggregator, [0, 1]), [0.5, 0.5, 0], atol=SINGLE)
