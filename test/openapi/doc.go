// Package openapi checks the OpenAPI document with software that is not ours: two linters, and a client in TypeScript that is
// compiled against types generated from it. The AsyncAPI document of the WebSockets is read by AsyncAPI's own parser.
package openapi
