// Spillway as a library: fill in TrainOptions, derive a TrainObserver to watch, call run_train. The other verbs of the
// command line are functions beside it. Errors are thrown as UserError, DoesNotFit or DeviceError (base/error.h).
#pragma once

#include "base/error.h"
#include "session/options.h"
#include "session/run_control.h"
#include "session/session.h"
#include "telemetry/observer.h"
#include "telemetry/record.h"
