// Settings that are in force for now: how long until the old ones come back, on every page.

import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { sentence } from "../admin";
import { type Pending, confirm, expired, pending, undo } from "../settings/state";
import { outcome } from "./confirm";

export function PendingBanner() {
  const waiting = pending.value;
  return waiting && <Countdown key={waiting.revision} waiting={waiting} />;
}

function Countdown({ waiting }: { waiting: Pending }) {
  const left = useSignal(leftOf(waiting));
  const isBusy = useSignal(false);
  const trouble = useSignal<string | null>(null);
  const { revision } = waiting;
  const act = async (what: () => Promise<string>) => {
    [isBusy.value, trouble.value] = [true, null];
    try {
      outcome.value = await what();
    } catch (error) {
      trouble.value = sentence(error);
    }
    isBusy.value = false;
  };
  useEffect(() => {
    const timer = setInterval(() => {
      left.value = leftOf(waiting);
      if (left.value > 0) return;
      clearInterval(timer);
      void act(async () => {
        await expired();
        return `Nobody has confirmed revision ${revision}: the settings from before are back.`;
      });
    }, 250);
    return () => clearInterval(timer);
  }, []);
  const keep = async () => {
    await confirm();
    return `Revision ${revision} is kept.`;
  };
  const goBack = async () => {
    const { kind } = await undo(waiting);
    if (kind === "applied") return `Revision ${revision} is undone.`;
    return kind === "overtaken" ? "Somebody else has changed the settings since." : "It could not be undone.";
  };
  return (
    <div class="pending" role="alertdialog" aria-label="Settings that wait to be confirmed">
      <p>
        Revision {revision} is in force for now, and comes undone in{" "}
        <strong role="timer">{Math.ceil(left.value)} s</strong> unless it is kept. {trouble.value}
      </p>
      <p class="actions">
        <button type="button" class="main" disabled={isBusy.value} onClick={() => void act(keep)}>
          Keep it
        </button>
        <button type="button" disabled={isBusy.value} onClick={() => void act(goBack)}>
          Undo it now
        </button>
      </p>
    </div>
  );
}

const leftOf = ({ until }: Pending) => Math.max(0, (until - Date.now()) / 1000);
