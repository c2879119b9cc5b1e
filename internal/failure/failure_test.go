package failure_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/failure"
)

func TestCodeOfFindsErrorInChain(t *testing.T) {
	t.Parallel()
	cause := errors.New("disk on fire")
	coded := failure.Errorf(failure.TooLarge, "%d bytes", 7)
	require.EqualError(t, coded, "7 bytes")
	wrapped := errors.Join(errors.New("other"), &failure.Error{Code: failure.NoRun, Message: "no run", Err: cause})
	require.Empty(t, failure.CodeOf(nil))
	require.Equal(t, failure.TooLarge, failure.CodeOf(coded))
	require.Equal(t, failure.NoRun, failure.CodeOf(wrapped))
	require.Equal(t, failure.Internal, failure.CodeOf(cause))
	require.ErrorIs(t, wrapped, cause)
	require.ErrorContains(t, wrapped, "no run: disk on fire")
}
