import type { Client, SessionStore, Transport } from "@overwinter/client";
import { createContext, useContext, useMemo, type ReactNode } from "react";

/** The stores of the displayed sessions: one per session, shared by all components. */
class Stores {
  #byId = new Map<string, SessionStore>();

  constructor(
    readonly client: Client,
    readonly transport: Transport | undefined,
  ) {}

  of(sessionId: string): SessionStore {
    let store = this.#byId.get(sessionId);
    if (!store) {
      store = this.client.session(sessionId).store(() => this.#byId.delete(sessionId), this.transport);
      this.#byId.set(sessionId, store);
    }
    return store;
  }
}

const Context = createContext<Stores | undefined>(undefined);

/**
 * Provides a client to the hooks and components below it. Keep the client outside of components, or in a
 * memo. `transport` is used for following sessions; the default is that of the client.
 */
export function OverwinterProvider({ client, transport, children }: { client: Client; transport?: Transport; children?: ReactNode }) {
  const stores = useMemo(() => new Stores(client, transport), [client, transport]);
  return <Context.Provider value={stores}>{children}</Context.Provider>;
}

function useStores(): Stores {
  const stores = useContext(Context);
  if (!stores) throw new Error("the hooks of @overwinter/react need an OverwinterProvider above them");
  return stores;
}

/** The client of the provider. */
export function useClient(): Client {
  return useStores().client;
}

/** The store of a session, shared with other components. */
export function useStore(sessionId: string): SessionStore {
  return useStores().of(sessionId);
}
