package temporald

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
)

const (
	keyword = enumspb.INDEXED_VALUE_TYPE_KEYWORD
	integer = enumspb.INDEXED_VALUE_TYPE_INT
)

func TestAddSearchAttributesKeepsExisting(t *testing.T) {
	t.Parallel()
	before := map[string]string{"Keyword02": "Owner", "Int01": "Tries"}
	after, changed, err := addSearchAttributes(before, map[string]enumspb.IndexedValueType{
		"Owner": keyword, "Status": keyword, "Agent": keyword, "Generation": integer,
	})
	require.NoError(t, err)
	require.True(t, changed)
	require.Equal(t, map[string]string{
		"Keyword01": "Agent", "Keyword02": "Owner", "Keyword03": "Status", "Int01": "Tries", "Int02": "Generation",
	}, after)
	require.Equal(t, map[string]string{"Keyword02": "Owner", "Int01": "Tries"}, before)

	again, changed, err := addSearchAttributes(after, map[string]enumspb.IndexedValueType{"Owner": keyword})
	require.NoError(t, err)
	require.False(t, changed)
	require.Equal(t, after, again)
}

func TestAddSearchAttributesRefuses(t *testing.T) {
	t.Parallel()
	many := map[string]enumspb.IndexedValueType{}
	for n := range 100 {
		many[fmt.Sprintf("Number%02d", n)] = integer
	}
	for name, tt := range map[string]struct {
		wanted map[string]enumspb.IndexedValueType
		want   string
	}{
		"another type":    {map[string]enumspb.IndexedValueType{"Owner": integer}, "exists with type Keyword, want Int"},
		"a system name":   {map[string]enumspb.IndexedValueType{"WorkflowId": keyword}, "the name belongs to Temporal"},
		"a reserved name": {map[string]enumspb.IndexedValueType{"TemporalColour": keyword}, "the name belongs to Temporal"},
		"too many":        {many, "no column of type Int is free"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, _, err := addSearchAttributes(map[string]string{"Keyword01": "Owner"}, tt.wanted)
			require.ErrorContains(t, err, tt.want)
		})
	}
}
