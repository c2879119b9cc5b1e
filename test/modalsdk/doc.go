// Package modalsdk runs the tests that Modal wrote for its Go SDK against the local Modal. They come with the
// SDK's module, so they are always of the version that this program uses.
//
// docs/modal-sdk-tests.md lists those that fail, with the reason; nothing else may. With -expected-failures (make
// test-modal-sdk) they run too, each in a separate process, and one that passes fails the test.
package modalsdk
