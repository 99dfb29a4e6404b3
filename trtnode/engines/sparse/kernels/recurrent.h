/* The recurrence of LSTM and GRU: state products and gates of all steps. */
#pragma once

#include "tensors.h"

Status *create_lstm_cell(const KernelInfo *info, void **made);
Status *create_gru_cell(const KernelInfo *info, void **made);

/* Inputs: products of all steps' inputs with the input weights, [steps, batch, directions × gates × hidden]; the matrix
   of state weights; the first state and, for LSTM, the first cell, [directions, batch, hidden] or absent.
   Outputs as LSTM and GRU of ONNX have them. */
Status *compute_cell(void *made, KernelContext *context);
