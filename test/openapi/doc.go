// Package openapi checks the OpenAPI document with third-party software: two linters, and a client
// in TypeScript that is compiled against types generated from it. AsyncAPI's own parser reads the
// AsyncAPI document of the WebSockets.
package openapi
