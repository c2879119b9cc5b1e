/** One message of a stream of server-sent events. */
export interface Message {
  event: string;
  data: string;
}

/** Maximum length of a message: several times that of the largest event. */
const maxMessage = 32 << 20;

/** Parses server-sent events from pieces of text of any size. Buffers only the incomplete message. */
export class SSEParser {
  #line: string[] = [];
  #length = 0;
  #event = "";
  #data: string[] = [];

  /** Yields the messages completed by this piece. */
  *push(piece: string): Generator<Message> {
    let start = 0;
    for (let end = piece.indexOf("\n"); end >= 0; end = piece.indexOf("\n", start)) {
      this.#line.push(piece.slice(start, end));
      start = end + 1;
      let line = this.#line.join("");
      this.#line = [];
      if (line.endsWith("\r")) line = line.slice(0, -1);
      if (line !== "") {
        this.#field(line);
        continue;
      }
      if (this.#data.length > 0) yield { event: this.#event, data: this.#data.join("\n") };
      this.#event = "";
      this.#data = [];
      this.#length = 0;
    }
    const rest = piece.slice(start);
    this.#length += rest.length;
    if (this.#length > maxMessage) throw new RangeError(`a message of the stream is longer than ${maxMessage} characters`);
    if (rest !== "") this.#line.push(rest);
  }

  #field(line: string): void {
    const colon = line.indexOf(":");
    const name = colon < 0 ? line : line.slice(0, colon);
    let value = colon < 0 ? "" : line.slice(colon + 1);
    if (value.startsWith(" ")) value = value.slice(1);
    if (name === "event") this.#event = value;
    else if (name === "data") {
      this.#data.push(value);
      this.#length += value.length;
    }
  }
}
