package temporald

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"go.temporal.io/server/common/dynamicconfig"
	"gopkg.in/yaml.v3"
)

// tuning is what a server of one shard with few users needs, and a cluster does not.
var tuning = map[string]string{
	// A shard reads each of its queues 20 times a second by default, which is plenty for the
	// thousands of shards of a cluster. Here it makes a lone signal, start or search wait 50 ms.
	"history.transferProcessorMaxPollRPS":   "2000",
	"history.timerProcessorMaxPollRPS":      "2000",
	"history.visibilityProcessorMaxPollRPS": "2000",
	"history.outboundProcessorMaxPollRPS":   "2000",

	// Partitions spread a task queue over machines. With one machine they only make a task wait
	// in another partition than the poller does.
	"matching.numTaskqueueReadPartitions":  "1",
	"matching.numTaskqueueWritePartitions": "1",

	// The eleventh update in flight to one workflow is refused by default and retried by the
	// client after half a second or more.
	"history.maxInFlightUpdates": "100",

	// Nothing leaves this machine.
	"frontend.enableServerVersionCheck": "false",
}

// dynamicConfig returns the tuning with the overrides laid over it. A key that the server does not
// know, or a value that it would not take, is an error: the server itself would ignore either.
func dynamicConfig(overrides map[string]string) (dynamicconfig.StaticClient, error) {
	values := maps.Clone(tuning)
	for key, value := range overrides {
		// Keys are case-insensitive; an override must replace what it overrides.
		for tuned := range values {
			if dynamicconfig.MakeKey(tuned) == dynamicconfig.MakeKey(key) {
				delete(values, tuned)
			}
		}
		values[key] = value
	}

	static := make(dynamicconfig.StaticClient, len(values))
	for _, key := range slices.Sorted(maps.Keys(values)) {
		constrained, err := loadDynamicValue(key, values[key])
		if err != nil {
			return nil, fmt.Errorf("dynamic config %s=%s: %w", key, values[key], err)
		}
		static[dynamicconfig.MakeKey(key)] = constrained
	}
	return static, nil
}

// loadDynamicValue reads one value the way the server reads its configuration files.
func loadDynamicValue(key, value string) ([]dynamicconfig.ConstrainedValue, error) {
	var parsed any
	if err := yaml.Unmarshal([]byte(value), &parsed); err != nil {
		return nil, fmt.Errorf("parse value: %w", err)
	}
	document, err := yaml.Marshal([]map[string]any{{"value": parsed}})
	if err != nil {
		return nil, fmt.Errorf("encode value: %w", err)
	}
	var loader dynamicconfig.YamlLoader
	loader.LoadValue(dynamicconfig.MakeKey(key), document)
	if err := errors.Join(append(loader.Errors, loader.Warnings...)...); err != nil {
		return nil, err
	}
	return loader.Map[dynamicconfig.MakeKey(key)], nil
}
