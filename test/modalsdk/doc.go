// Package modalsdk runs the tests of Modal's Go SDK against the local Modal. They are part of the
// SDK's module, so they always have the version that this program uses.
//
// docs/modal-sdk-tests.md lists the failing tests with the reasons; no other test may fail. With
// -expected-failures (make test-modal-sdk) the listed tests run too, each in a separate process,
// and the run fails if one of them passes.
package modalsdk
