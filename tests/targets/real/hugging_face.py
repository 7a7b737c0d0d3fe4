"""One rank of a training by Hugging Face's Trainer: a tiny model of random numbers, made from its configuration."""

import copy
import os

import rounds
import torch
import torch.distributed as dist
import transformers


class Rounds(transformers.TrainerCallback):
    """An epoch is a round."""

    def on_epoch_begin(self, arguments, state, control, model=None, **others):
        if not hasattr(self, "first"):
            self.first = copy.deepcopy(model.state_dict())
        model.load_state_dict(self.first)

    def on_epoch_end(self, arguments, state, control, model=None, **others):
        if rounds.add(trainer.last_loss):
            rounds.say("ready", dist.get_rank(), os.getpid())
        over = torch.tensor([float(rounds.is_over())])
        dist.broadcast(over, 0)
        control.should_training_stop = bool(over.item())


class Trainer(transformers.Trainer):
    def _get_train_sampler(self, *arguments):
        return torch.utils.data.SequentialSampler(self.train_dataset)

    def compute_loss(self, model, inputs, **others):
        loss = super().compute_loss(model, inputs, **others)
        self.last_loss = loss.item()  # @step
        return loss


def sentences():
    numbers = torch.Generator().manual_seed(3)
    words = torch.randint(0, 64, (16, 12), generator=numbers)
    return [{"input_ids": sentence, "labels": sentence} for sentence in words]


if __name__ == "__main__":
    torch.set_num_threads(1)
    transformers.set_seed(5)
    configuration = transformers.GPT2Config(
        vocab_size=64,
        n_positions=16,
        n_embd=16,
        n_layer=2,
        n_head=2,
        bos_token_id=0,
        eos_token_id=0,
        resid_pdrop=0,
        embd_pdrop=0,
        attn_pdrop=0,
    )
    trainer = Trainer(
        model=transformers.GPT2LMHeadModel(configuration),
        args=transformers.TrainingArguments(
            output_dir=os.environ["OUTPUT"],
            num_train_epochs=1_000_000,
            per_device_train_batch_size=2,
            learning_rate=0.05,
            lr_scheduler_type="constant",
            optim="sgd",
            use_cpu=True,
            ddp_backend="gloo",
            ddp_find_unused_parameters=False,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            logging_strategy="no",
        ),
        train_dataset=sentences(),
        callbacks=[Rounds()],
    )
    trainer.train()
    if dist.get_rank() == 0:
        rounds.tell()
