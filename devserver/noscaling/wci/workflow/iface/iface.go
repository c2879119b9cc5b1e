// Package iface has the shapes of worker controllers that a server names.
package iface

import (
	"time"

	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
)

// ComputeProviderType names where workers are started.
type ComputeProviderType string

// ScalingAlgorithmType names how their number is decided.
type ScalingAlgorithmType string

// ComputeProviderSpec is where the workers of a group are started.
type ComputeProviderSpec struct {
	ProviderType  ComputeProviderType
	Config        *commonpb.Payload
	NexusEndpoint string
}

// ScalingAlgorithmSpec is how the number of workers of a group is decided.
type ScalingAlgorithmSpec struct {
	ScalingAlgorithm ScalingAlgorithmType
	Config           *commonpb.Payload
}

// ScalingGroupSpec is a group of workers.
type ScalingGroupSpec struct {
	TaskTypes []enumspb.TaskQueueType
	Compute   ComputeProviderSpec
	Scaling   *ScalingAlgorithmSpec
}

// ScalingGroupSpecUpdate changes a group of workers.
type ScalingGroupSpecUpdate struct {
	Spec       ScalingGroupSpec
	UpdateMask []string
}

// WorkerControllerInstanceSpec is all groups of a version.
type WorkerControllerInstanceSpec struct {
	ScalingGroupSpecs map[string]ScalingGroupSpec
}

// ValidationResult says whether a provider accepted a version's groups.
type ValidationResult string

// ValidationResultFailed is the result that has a message.
const ValidationResultFailed ValidationResult = "failed"

// ValidationStatus is the result of the last validation. Workflows receive it as JSON.
type ValidationStatus struct {
	Status             ValidationResult `json:"status"`
	LastValidationTime time.Time        `json:"last_validation_time"`
	ErrMessage         string           `json:"err_message,omitempty"`
}

// QueryDescribeWorkerControllerInstanceResponse describes a worker controller.
type QueryDescribeWorkerControllerInstanceResponse struct {
	Spec             *WorkerControllerInstanceSpec
	ValidationStatus *ValidationStatus
}

// UpdateWorkerControllerInstanceResponse is what a worker controller has after an update.
type UpdateWorkerControllerInstanceResponse struct {
	Spec *WorkerControllerInstanceSpec
}
