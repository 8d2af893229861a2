"""Tasks by the names that the hub has for them, and the class that a config has for a task."""

from __future__ import annotations

import difflib
from typing import Any

from anyshape.errors import FileError, UsageError

__all__ = ["TASKS", "class_of", "fits"]

# Each with the tables of transformers that say which class of a config does it.
TASKS = {
    "audio-classification": ("MODEL_FOR_AUDIO_CLASSIFICATION_MAPPING",),
    "automatic-speech-recognition": ("MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING", "MODEL_FOR_CTC_MAPPING"),
    "depth-estimation": ("MODEL_FOR_DEPTH_ESTIMATION_MAPPING",),
    "document-question-answering": ("MODEL_FOR_DOCUMENT_QUESTION_ANSWERING_MAPPING",),
    "feature-extraction": ("MODEL_MAPPING",),
    "fill-mask": ("MODEL_FOR_MASKED_LM_MAPPING",),
    "image-classification": ("MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING",),
    "image-segmentation": ("MODEL_FOR_IMAGE_SEGMENTATION_MAPPING",),
    "image-text-to-text": ("MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING",),
    "image-to-image": ("MODEL_FOR_IMAGE_TO_IMAGE_MAPPING",),
    "instance-segmentation": ("MODEL_FOR_INSTANCE_SEGMENTATION_MAPPING",),
    "keypoint-detection": ("MODEL_FOR_KEYPOINT_DETECTION_MAPPING",),
    "mask-generation": ("MODEL_FOR_MASK_GENERATION_MAPPING",),
    "masked-image-modeling": ("MODEL_FOR_MASKED_IMAGE_MODELING_MAPPING",),
    "multiple-choice": ("MODEL_FOR_MULTIPLE_CHOICE_MAPPING",),
    "next-sentence-prediction": ("MODEL_FOR_NEXT_SENTENCE_PREDICTION_MAPPING",),
    "object-detection": ("MODEL_FOR_OBJECT_DETECTION_MAPPING",),
    "question-answering": ("MODEL_FOR_QUESTION_ANSWERING_MAPPING",),
    "semantic-segmentation": ("MODEL_FOR_SEMANTIC_SEGMENTATION_MAPPING",),
    "text-classification": ("MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING",),
    "text-generation": ("MODEL_FOR_CAUSAL_LM_MAPPING",),
    "text2text-generation": ("MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING",),
    "time-series-prediction": ("MODEL_FOR_TIME_SERIES_PREDICTION_MAPPING",),
    "token-classification": ("MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING",),
    "universal-segmentation": ("MODEL_FOR_UNIVERSAL_SEGMENTATION_MAPPING",),
    "video-classification": ("MODEL_FOR_VIDEO_CLASSIFICATION_MAPPING",),
    "visual-question-answering": ("MODEL_FOR_VISUAL_QUESTION_ANSWERING_MAPPING",),
    "zero-shot-image-classification": ("MODEL_FOR_ZERO_SHOT_IMAGE_CLASSIFICATION_MAPPING",),
    "zero-shot-object-detection": ("MODEL_FOR_ZERO_SHOT_OBJECT_DETECTION_MAPPING",),
}


def class_of(library: Any, config: Any, task: str | None) -> type:
    """The class for a task, or the one that the config names; `UsageError` where that leaves none or several."""
    named = list(config.architectures or ())
    if task is None:
        return _named_class(library, config, named)
    if task not in TASKS:
        close = difflib.get_close_matches(task, TASKS, 1)
        hint = f"Did you mean {close[0]}?" if close else f"Tasks are: {', '.join(TASKS)}."
        raise UsageError(f"there is no task {task}", hint=hint)
    classes = _classes(library, config, task)
    if not classes:
        raise UsageError(
            f"{config.model_type} has no class for {task}",
            hint=f"It has: {', '.join(_tasks_of(library, config)) or 'none that has a task'}.",
        )
    chosen = [each for each in classes if each.__name__ in named] or classes
    if len(chosen) > 1:
        raise UsageError(
            f"{config.model_type} has several classes for {task}: {', '.join(c.__name__ for c in chosen)}",
            hint=f'Name one in config.json: "architectures": ["{chosen[0].__name__}"].',
        )
    return chosen[0]


def fits(library: Any, kind: type, task: str) -> bool:
    """Whether a class is one that transformers has for a task."""
    config = getattr(kind, "config_class", None)
    return any(
        kind is each
        for table in TASKS[task]
        for each in _flat(getattr(library, table, {}).get(config, None) if config else None)
    )


def _named_class(library: Any, config: Any, named: list[str]) -> type:
    if len(named) == 1:
        try:
            found: type = getattr(library, named[0])
        except AttributeError as error:
            raise FileError(
                f"transformers {library.__version__} has no class {named[0]}",
                hint="Give another --task, or write a function that builds the model: FILE.py:NAME.",
            ) from error
        return found
    tasks = _tasks_of(library, config)
    every = list(dict.fromkeys(each for task in tasks for each in _classes(library, config, task)))
    if not named and len(every) == 1:
        return every[0]
    says = f"names several classes: {', '.join(named)}" if named else "names no class"
    raise UsageError(
        f"the config of {config.model_type} {says}",
        hint=f"Choose one with --task: {', '.join(tasks) or 'transformers has none for it'}.",
    )


def _tasks_of(library: Any, config: Any) -> list[str]:
    return [task for task in TASKS if _classes(library, config, task)]


def _classes(library: Any, config: Any, task: str) -> list[type]:
    """The classes that a config has for a task, each once."""
    found: list[type] = []
    for name in TASKS[task]:
        table = getattr(library, name, None)
        if table is not None and type(config) in table:
            found += _flat(table[type(config)])
    return list(dict.fromkeys(found))


def _flat(value: Any) -> tuple[type, ...]:
    if value is None:
        return ()
    return tuple(value) if isinstance(value, (tuple, list)) else (value,)
