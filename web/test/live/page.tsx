// The page that the browser opens: the example, for the session in the address, over the transport in its query.
import { createClient } from "@overwinter/client";
import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { App } from "../examples/app.js";

const client = createClient({ baseUrl: "", transport: location.search === "?websocket" ? "websocket" : "sse" });
const id = location.hash.slice(1) || (await client.createSession({ agent: "demo", title: "In a browser" })).session.id;
location.hash = id;
const root = document.getElementById("root");
if (root) createRoot(root).render(<StrictMode><App client={client} sessionId={id} /></StrictMode>);
