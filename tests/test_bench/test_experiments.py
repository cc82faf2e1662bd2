"""What an experiment's cells differ in: what they set, and nothing else."""

import pytest

from bench.experiment_cells import (
    Job,
    cell_config,
    find_experiments,
    heal_config,
    jobs_of,
    load_experiment,
)


@pytest.mark.parametrize("name", find_experiments())
def test_every_heal_of_an_experiment_differs_from_every_other(name: str) -> None:
    experiment = load_experiment(name)
    configs = [
        (job.place.demo, cell_config(job, experiment.cells[job.cell]).model_dump_json())
        for job in jobs_of(name, experiment)
    ]
    assert len(set(configs)) == len(configs)


def test_a_cell_of_three_times_the_steps_is_evaluated_as_often() -> None:
    experiment = load_experiment("1_layouts_losses")
    place = experiment.places[0]
    found = {
        cell.name: cell_config(Job("1_layouts_losses", place, index, 2), cell).train
        for index, cell in enumerate(experiment.cells)
    }
    exact, rows = found["exact tail_kl"], found["rows tail_kl"]
    assert exact.steps is not None
    assert (exact.seed, rows.seed) == (2, 2)
    assert rows.steps == 3 * exact.steps
    assert rows.eval_every == 3 * exact.eval_every
    assert (exact.layout, rows.layout) == ("exact", "rows")


def test_the_first_cell_is_the_place_as_it_is() -> None:
    for name in find_experiments():
        experiment = load_experiment(name)
        first = experiment.cells[0]
        if first.set:
            continue
        for place in experiment.places:
            got = cell_config(Job(name, place, 0, 0), first)
            assert got == heal_config(place.demo, place.set, ("train.seed=0",)), name
