// The only module that talks to the server.

/** The server said no, in one sentence. */
export class Refused extends Error {
  constructor(sentence, status) {
    super(sentence);
    this.status = status;
  }
}

/** Nobody answered. */
export class Gone extends Error {
  constructor() {
    super("the server does not answer");
  }
}

export class Api {
  /** @param {string} session  of `openSession` */
  constructor(session) {
    this.session = session;
  }

  async get(path, signal) {
    return (await this.ask(path, { signal })).json();
  }

  async bytes(path, signal) {
    return (await this.ask(path, { signal })).arrayBuffer();
  }

  async blob(path) {
    return (await this.ask(path, {})).blob();
  }

  async post(path, body = {}) {
    return (await this.postFor(path, body)).json();
  }

  async postForBytes(path, body) {
    return (await this.postFor(path, body)).arrayBuffer();
  }

  postFor(path, body) {
    const headers = { "Content-Type": "application/json" };
    return this.ask(path, { method: "POST", body: JSON.stringify(body), headers });
  }

  /** @param {RequestInit} options */
  async ask(path, options) {
    const headers = { ...options.headers, ...(this.session ? { Authorization: `Bearer ${this.session}` } : {}) };
    let answer;
    try {
      answer = await fetch(`/api/${path}`, { ...options, headers });
    } catch (problem) {
      if (options.signal?.aborted) throw problem;
      throw new Gone();
    }
    if (answer.ok) return answer;
    const said = await answer.json().catch(() => ({}));
    throw new Refused(said.problem ?? `the server answered ${answer.status}`, answer.status);
  }
}
