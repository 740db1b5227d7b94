// The only module that talks to the server.

/** The server refused a request, with a sentence that says why. */
export class RequestError extends Error {
  /** @param {string} sentence @param {number} status */
  constructor(sentence, status) {
    super(sentence);
    this.status = status;
  }
}

/** The server did not answer. */
export class ServerUnreachable extends Error {
  constructor() {
    super("the server does not answer");
  }
}

export class Api {
  /** @param {string} session  of `openSession` */
  constructor(session) {
    this.session = session;
  }

  /** @param {string} path @param {AbortSignal} [signal] @returns {Promise<any>} */
  async getJson(path, signal) {
    return (await this.request(path, { signal })).json();
  }

  /** @param {string} path @param {AbortSignal} [signal] */
  async getBytes(path, signal) {
    return (await this.request(path, { signal })).arrayBuffer();
  }

  /** @param {string} path @param {AbortSignal} [signal] */
  async getBlob(path, signal) {
    return (await this.request(path, { signal, priority: "low" })).blob();
  }

  /** @param {string} path @returns {Promise<any>} */
  async post(path, body = {}) {
    return (await this.send(path, body)).json();
  }

  /** @param {string} path @param {object} body */
  async postForBytes(path, body) {
    return (await this.send(path, body)).arrayBuffer();
  }

  /** @param {string} path @param {object} body */
  send(path, body) {
    const headers = { "Content-Type": "application/json" };
    return this.request(path, { method: "POST", body: JSON.stringify(body), headers, priority: "high" });
  }

  /** @param {string} path @param {RequestInit} options */
  async request(path, options) {
    const headers = new Headers(options.headers);
    if (this.session) headers.set("Authorization", `Bearer ${this.session}`);
    let answer;
    try {
      answer = await fetch(`/api/${path}`, { ...options, headers });
    } catch (problem) {
      if (options.signal?.aborted) throw problem;
      throw new ServerUnreachable();
    }
    if (answer.ok) return answer;
    const said = await answer.json().catch(() => ({}));
    throw new RequestError(said.problem ?? `the server answered ${answer.status}`, answer.status);
  }
}
