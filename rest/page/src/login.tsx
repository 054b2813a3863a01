// Asks for a user of rest.users.file.

import { useState } from "preact/hooks";
import { ApiError, logIn } from "./api";

export function LoginView({ problem, onDone }: { problem: string; onDone: () => void }) {
  const [error, setError] = useState(problem);
  const [isAsking, setAsking] = useState(false);
  const submit = async (event: SubmitEvent) => {
    event.preventDefault();
    const given = new FormData(event.currentTarget as HTMLFormElement);
    setAsking(true);
    try {
      await logIn(String(given.get("user") ?? "").trim(), String(given.get("password") ?? ""));
      onDone();
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
        {error && (
          <p class="note bad" role="alert">
            {error}
          </p>
        )}
      </form>
    </main>
  );
}
