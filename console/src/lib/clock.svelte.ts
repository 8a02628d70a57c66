// The present time for everything that shows an age: one timer, however many ages are shown.

class Now {
  ms = $state(Date.now());

  constructor() {
    setInterval(() => {
      if (!document.hidden) this.ms = Date.now();
    }, 1000);
    document.addEventListener("visibilitychange", () => (this.ms = Date.now()));
  }
}

export const now = new Now();
