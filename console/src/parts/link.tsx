// The address of what is shown, for somebody else.

import { useSignal } from "@preact/signals";

/** Copies the address; where the browser does not let that be, shows it to be copied by hand. */
export function CopyLink() {
  const state = useSignal<"" | "copied" | "shown">("");
  const copy = async () => {
    try {
      // Only over TLS, and on the machine itself, is there a clipboard.
      await navigator.clipboard.writeText(location.href);
      state.value = "copied";
    } catch {
      state.value = "shown";
    }
  };
  return (
    <>
      <button type="button" onClick={() => void copy()}>
        Copy the link
      </button>{" "}
      <span role="status">{state.value === "copied" && "Copied."}</span>
      {state.value === "shown" && (
        <input type="text" aria-label="The link" readOnly value={location.href} ref={(element) => element?.select()} />
      )}
    </>
  );
}
