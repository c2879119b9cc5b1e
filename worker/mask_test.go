package worker

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"

	"github.com/overwinter-dev/overwinter/activities"
)

func TestErrorsOfActivitiesAreMaskedAndKeepTheirKind(t *testing.T) {
	t.Parallel()
	mask := strings.NewReplacer("hunter2", "[redacted]").Replace
	plain := errors.New("nothing")
	require.Same(t, plain, maskError(plain, mask))
	require.NoError(t, maskError(nil, mask))

	refused := temporal.NewNonRetryableApplicationError("setup printed hunter2", activities.Refused, errors.New("hunter2"))
	masked := maskError(refused, mask)
	require.NotContains(t, masked.Error(), "hunter2")
	require.Equal(t, activities.Refused, activities.TypeOf(masked))
	require.True(t, activities.IsFinal(masked))

	// Temporal names an error without a type after its Go type, and retries it.
	wrapped := maskError(fmt.Errorf("clone: %w", refused), mask)
	require.NotContains(t, wrapped.Error(), "hunter2")
	require.False(t, activities.IsFinal(wrapped))
}
