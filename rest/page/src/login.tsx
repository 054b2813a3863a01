// Asks for a user of rest.users.file.

import { useState } from "preact/hooks";
import { ApiError, logIn } from "./api";

const OF_ONE_WORKER = "The password is right, but the session is not known. Sessions are of one worker: open a worker's own address.";

export function LoginView({ problem, onDone }: { problem: string; onDone: () => Promise<boolean | null> }) {
  const [error, setError] = useState("");
  const [isAsking, setAsking] = useState(false);
  const submit = async (event: SubmitEvent) => {
    event.preventDefault();
    const given = new FormData(event.currentTarget as HTMLFormElement);
    setAsking(true);
    try {
      await logIn(String(given.get("user") ?? "").trim(), String(given.get("password") ?? ""));
      const isKnown = await onDone();
      if (isKnown) return;
      setError(isKnown === null ? "The worker does not answer any more. The page asks again by itself." : OF_ONE_WORKER);
      setAsking(false);
    } catch (failed) {
      setError(failed instanceof ApiError ? failed.message : String(failed));
      setAsking(false);
    }
  };
  return (
    <main class="login panel" id="content">
      <h1>mm2py</h1>
      <form onSubmit={submit}>
        <label>
          User <input name="user" autocomplete="username" autofocus />
        </label>
        <label>
          Password <input name="password" type="password" autocomplete="current-password" required />
        </label>
        <button type="submit" disabled={isAsking}>
          Log in
        </button>
        <p class="muted">Users are those of rest.users.file. With a token, leave the user empty.</p>
        {(error || problem) && (
          <p class="note bad" role="alert">
            {error || problem}
          </p>
        )}
      </form>
    </main>
  );
}
