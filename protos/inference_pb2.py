"""Messages of inference.proto. Written by protos/generate.py; do not edit."""

from trtnode.protos import private_pool

DESCRIPTOR = private_pool.load_file(
    b'\n\x0finference.proto\x12\tinference"\x13\n\x11ServerLiveRequest"(\n\x12ServerLiveResponse\x12'
    b'\x12\n\x04live\x18\x01 \x01(\x08R\x04live"\x14\n\x12ServerReadyRequest"+\n\x13ServerReadyResponse\x12\x14\n\x05read'
    b'y\x18\x01 \x01(\x08R\x05ready"A\n\x11ModelReadyRequest\x12\x12\n\x04name\x18\x01 \x01(\tR\x04name\x12\x18\n\x07version\x18\x02 \x01(\t'
    b'R\x07version"*\n\x12ModelReadyResponse\x12\x14\n\x05ready\x18\x01 \x01(\x08R\x05ready"\x17\n\x15ServerMetadataR'
    b'equest"f\n\x16ServerMetadataResponse\x12\x12\n\x04name\x18\x01 \x01(\tR\x04name\x12\x18\n\x07version\x18\x02 \x01(\tR\x07v'
    b'ersion\x12\x1e\n\nextensions\x18\x03 \x03(\tR\nextensions"D\n\x14ModelMetadataRequest\x12\x12\n\x04name\x18\x01'
    b' \x01(\tR\x04name\x12\x18\n\x07version\x18\x02 \x01(\tR\x07version"\xcf\x02\n\x15ModelMetadataResponse\x12\x12\n\x04name\x18\x01'
    b' \x01(\tR\x04name\x12\x1a\n\x08versions\x18\x02 \x03(\tR\x08versions\x12\x1a\n\x08platform\x18\x03 \x01(\tR\x08platform\x12G\n\x06in'
    b'puts\x18\x04 \x03(\x0b2/.inference.ModelMetadataResponse.TensorMetadataR\x06inputs\x12I\n\x07o'
    b'utputs\x18\x05 \x03(\x0b2/.inference.ModelMetadataResponse.TensorMetadataR\x07outputs\x1aV'
    b'\n\x0eTensorMetadata\x12\x12\n\x04name\x18\x01 \x01(\tR\x04name\x12\x1a\n\x08datatype\x18\x02 \x01(\tR\x08datatype\x12\x14\n\x05shap'
    b'e\x18\x03 \x03(\x03R\x05shape"\xd7\x01\n\x0eInferParameter\x12\x1f\n\nbool_param\x18\x01 \x01(\x08H\x00R\tboolParam\x12!\n\x0bin'
    b't64_param\x18\x02 \x01(\x03H\x00R\nint64Param\x12#\n\x0cstring_param\x18\x03 \x01(\tH\x00R\x0bstringParam\x12#\n\x0cdo'
    b'uble_param\x18\x04 \x01(\x01H\x00R\x0bdoubleParam\x12#\n\x0cuint64_param\x18\x05 \x01(\x04H\x00R\x0buint64ParamB\x12\n\x10'
    b'parameter_choice"\xc3\x02\n\x13InferTensorContents\x12#\n\rbool_contents\x18\x01 \x03(\x08R\x0cboolCon'
    b'tents\x12!\n\x0cint_contents\x18\x02 \x03(\x05R\x0bintContents\x12%\n\x0eint64_contents\x18\x03 \x03(\x03R\rint64C'
    b"ontents\x12#\n\ruint_contents\x18\x04 \x03(\rR\x0cuintContents\x12'\n\x0fuint64_contents\x18\x05 \x03(\x04R\x0eu"
    b'int64Contents\x12#\n\rfp32_contents\x18\x06 \x03(\x02R\x0cfp32Contents\x12#\n\rfp64_contents\x18\x07 \x03('
    b'\x01R\x0cfp64Contents\x12%\n\x0ebytes_contents\x18\x08 \x03(\x0cR\rbytesContents"\x9d\x08\n\x11ModelInferReq'
    b'uest\x12\x1d\n\nmodel_name\x18\x01 \x01(\tR\tmodelName\x12#\n\rmodel_version\x18\x02 \x01(\tR\x0cmodelVersion'
    b'\x12\x0e\n\x02id\x18\x03 \x01(\tR\x02id\x12L\n\nparameters\x18\x04 \x03(\x0b2,.inference.ModelInferRequest.Param'
    b'etersEntryR\nparameters\x12E\n\x06inputs\x18\x05 \x03(\x0b2-.inference.ModelInferRequest.Inf'
    b'erInputTensorR\x06inputs\x12Q\n\x07outputs\x18\x06 \x03(\x0b27.inference.ModelInferRequest.Inf'
    b'erRequestedOutputTensorR\x07outputs\x12,\n\x12raw_input_contents\x18\x07 \x03(\x0cR\x10rawInputCo'
    b'ntents\x1a\xcd\x02\n\x10InferInputTensor\x12\x12\n\x04name\x18\x01 \x01(\tR\x04name\x12\x1a\n\x08datatype\x18\x02 \x01(\tR\x08datat'
    b'ype\x12\x14\n\x05shape\x18\x03 \x03(\x03R\x05shape\x12]\n\nparameters\x18\x04 \x03(\x0b2=.inference.ModelInferRequ'
    b'est.InferInputTensor.ParametersEntryR\nparameters\x12:\n\x08contents\x18\x05 \x01(\x0b2\x1e.inf'
    b'erence.InferTensorContentsR\x08contents\x1aX\n\x0fParametersEntry\x12\x10\n\x03key\x18\x01 \x01(\tR\x03ke'
    b'y\x12/\n\x05value\x18\x02 \x01(\x0b2\x19.inference.InferParameterR\x05value:\x028\x01\x1a\xf3\x01\n\x1aInferRequeste'
    b'dOutputTensor\x12\x12\n\x04name\x18\x01 \x01(\tR\x04name\x12g\n\nparameters\x18\x02 \x03(\x0b2G.inference.ModelI'
    b'nferRequest.InferRequestedOutputTensor.ParametersEntryR\nparameters\x1aX\n\x0fPa'
    b'rametersEntry\x12\x10\n\x03key\x18\x01 \x01(\tR\x03key\x12/\n\x05value\x18\x02 \x01(\x0b2\x19.inference.InferParamete'
    b'rR\x05value:\x028\x01\x1aX\n\x0fParametersEntry\x12\x10\n\x03key\x18\x01 \x01(\tR\x03key\x12/\n\x05value\x18\x02 \x01(\x0b2\x19.infer'
    b'ence.InferParameterR\x05value:\x028\x01"\xdf\x05\n\x12ModelInferResponse\x12\x1d\n\nmodel_name\x18\x01 \x01('
    b'\tR\tmodelName\x12#\n\rmodel_version\x18\x02 \x01(\tR\x0cmodelVersion\x12\x0e\n\x02id\x18\x03 \x01(\tR\x02id\x12M\n\npar'
    b'ameters\x18\x04 \x03(\x0b2-.inference.ModelInferResponse.ParametersEntryR\nparameters'
    b'\x12I\n\x07outputs\x18\x05 \x03(\x0b2/.inference.ModelInferResponse.InferOutputTensorR\x07outp'
    b'uts\x12.\n\x13raw_output_contents\x18\x06 \x03(\x0cR\x11rawOutputContents\x1a\xd0\x02\n\x11InferOutputTenso'
    b'r\x12\x12\n\x04name\x18\x01 \x01(\tR\x04name\x12\x1a\n\x08datatype\x18\x02 \x01(\tR\x08datatype\x12\x14\n\x05shape\x18\x03 \x03(\x03R\x05shape\x12'
    b'_\n\nparameters\x18\x04 \x03(\x0b2?.inference.ModelInferResponse.InferOutputTensor.Par'
    b'ametersEntryR\nparameters\x12:\n\x08contents\x18\x05 \x01(\x0b2\x1e.inference.InferTensorConten'
    b'tsR\x08contents\x1aX\n\x0fParametersEntry\x12\x10\n\x03key\x18\x01 \x01(\tR\x03key\x12/\n\x05value\x18\x02 \x01(\x0b2\x19.infer'
    b'ence.InferParameterR\x05value:\x028\x01\x1aX\n\x0fParametersEntry\x12\x10\n\x03key\x18\x01 \x01(\tR\x03key\x12/\n\x05v'
    b'alue\x18\x02 \x01(\x0b2\x19.inference.InferParameterR\x05value:\x028\x01"\x85\x01\n\x18ModelStreamInferRes'
    b'ponse\x12#\n\rerror_message\x18\x01 \x01(\tR\x0cerrorMessage\x12D\n\x0einfer_response\x18\x02 \x01(\x0b2\x1d.inf'
    b'erence.ModelInferResponseR\rinferResponse"B\n\x12ModelConfigRequest\x12\x12\n\x04name\x18\x01'
    b' \x01(\tR\x04name\x12\x18\n\x07version\x18\x02 \x01(\tR\x07version"E\n\x13ModelConfigResponse\x12.\n\x06config\x18\x01 '
    b'\x01(\x0b2\x16.inference.ModelConfigR\x06config"\xcd\x01\n\x12ModelInstanceGroup\x12\x12\n\x04name\x18\x01 \x01(\t'
    b'R\x04name\x12\x14\n\x05count\x18\x02 \x01(\x05R\x05count\x12\x12\n\x04gpus\x18\x03 \x03(\x05R\x04gpus\x126\n\x04kind\x18\x04 \x01(\x0e2".inferen'
    b'ce.ModelInstanceGroup.KindR\x04kind"A\n\x04Kind\x12\r\n\tKIND_AUTO\x10\x00\x12\x0c\n\x08KIND_GPU\x10\x01\x12\x0c\n'
    b'\x08KIND_CPU\x10\x02\x12\x0e\n\nKIND_MODEL\x10\x03"\xbe\x02\n\x12ModelVersionPolicy\x12>\n\x06latest\x18\x01 \x01(\x0b2$.inf'
    b'erence.ModelVersionPolicy.LatestH\x00R\x06latest\x125\n\x03all\x18\x02 \x01(\x0b2!.inference.Mode'
    b'lVersionPolicy.AllH\x00R\x03all\x12D\n\x08specific\x18\x03 \x01(\x0b2&.inference.ModelVersionPoli'
    b'cy.SpecificH\x00R\x08specific\x1a+\n\x06Latest\x12!\n\x0cnum_versions\x18\x01 \x01(\rR\x0bnumVersions\x1a\x05\n\x03'
    b'All\x1a&\n\x08Specific\x12\x1a\n\x08versions\x18\x01 \x03(\x03R\x08versionsB\x0f\n\rpolicy_choice"\xf5\x01\n\nModelIn'
    b'put\x12\x12\n\x04name\x18\x01 \x01(\tR\x04name\x120\n\tdata_type\x18\x02 \x01(\x0e2\x13.inference.DataTypeR\x08dataTyp'
    b'e\x124\n\x06format\x18\x03 \x01(\x0e2\x1c.inference.ModelInput.FormatR\x06format\x12\x12\n\x04dims\x18\x04 \x03(\x03R\x04d'
    b'ims\x12\x1a\n\x08optional\x18\x08 \x01(\x08R\x08optional";\n\x06Format\x12\x0f\n\x0bFORMAT_NONE\x10\x00\x12\x0f\n\x0bFORMAT_NHW'
    b'C\x10\x01\x12\x0f\n\x0bFORMAT_NCHW\x10\x02"\x8e\x01\n\x0bModelOutput\x12\x12\n\x04name\x18\x01 \x01(\tR\x04name\x120\n\tdata_type\x18\x02 '
    b'\x01(\x0e2\x13.inference.DataTypeR\x08dataType\x12\x12\n\x04dims\x18\x03 \x03(\x03R\x04dims\x12%\n\x0elabel_filename'
    b'\x18\x04 \x01(\tR\rlabelFilename"\xaa\x02\n\x10ModelQueuePolicy\x12P\n\x0etimeout_action\x18\x01 \x01(\x0e2).inf'
    b'erence.ModelQueuePolicy.TimeoutActionR\rtimeoutAction\x12@\n\x1cdefault_timeout_'
    b'microseconds\x18\x02 \x01(\x04R\x1adefaultTimeoutMicroseconds\x124\n\x16allow_timeout_override'
    b'\x18\x03 \x01(\x08R\x14allowTimeoutOverride\x12$\n\x0emax_queue_size\x18\x04 \x01(\rR\x0cmaxQueueSize"&\n\rTi'
    b'meoutAction\x12\n\n\x06REJECT\x10\x00\x12\t\n\x05DELAY\x10\x01"\xe4\x02\n\x14ModelDynamicBatching\x120\n\x14preferred'
    b'_batch_size\x18\x01 \x03(\x05R\x12preferredBatchSize\x12?\n\x1cmax_queue_delay_microseconds\x18\x02 '
    b'\x01(\x04R\x19maxQueueDelayMicroseconds\x12+\n\x11preserve_ordering\x18\x03 \x01(\x08R\x10preserveOrder'
    b"ing\x12'\n\x0fpriority_levels\x18\x04 \x01(\x04R\x0epriorityLevels\x124\n\x16default_priority_level\x18\x05"
    b' \x01(\x04R\x14defaultPriorityLevel\x12M\n\x14default_queue_policy\x18\x06 \x01(\x0b2\x1b.inference.Mod'
    b'elQueuePolicyR\x12defaultQueuePolicy"3\n\x0eModelParameter\x12!\n\x0cstring_value\x18\x01 \x01('
    b'\tR\x0bstringValue"\x81\x07\n\x17ModelOptimizationPolicy\x12o\n\x16execution_accelerators\x18\x04 \x01'
    b'(\x0b28.inference.ModelOptimizationPolicy.ExecutionAcceleratorsR\x15executionA'
    b'ccelerators\x12e\n\x13input_pinned_memory\x18\x05 \x01(\x0b25.inference.ModelOptimizationPo'
    b'licy.PinnedMemoryBufferR\x11inputPinnedMemory\x12g\n\x14output_pinned_memory\x18\x06 \x01(\x0b'
    b'25.inference.ModelOptimizationPolicy.PinnedMemoryBufferR\x12outputPinnedMem'
    b'ory\x1a\xf6\x03\n\x15ExecutionAccelerators\x12\x80\x01\n\x19gpu_execution_accelerator\x18\x01 \x03(\x0b2D.infe'
    b'rence.ModelOptimizationPolicy.ExecutionAccelerators.AcceleratorR\x17gpuExec'
    b'utionAccelerator\x12\x80\x01\n\x19cpu_execution_accelerator\x18\x02 \x03(\x0b2D.inference.ModelOp'
    b'timizationPolicy.ExecutionAccelerators.AcceleratorR\x17cpuExecutionAccelera'
    b'tor\x1a\xd6\x01\n\x0bAccelerator\x12\x12\n\x04name\x18\x01 \x01(\tR\x04name\x12t\n\nparameters\x18\x02 \x03(\x0b2T.inference.'
    b'ModelOptimizationPolicy.ExecutionAccelerators.Accelerator.ParametersEntr'
    b'yR\nparameters\x1a=\n\x0fParametersEntry\x12\x10\n\x03key\x18\x01 \x01(\tR\x03key\x12\x14\n\x05value\x18\x02 \x01(\tR\x05value'
    b':\x028\x01\x1a,\n\x12PinnedMemoryBuffer\x12\x16\n\x06enable\x18\x01 \x01(\x08R\x06enable"\xba\x03\n\x0bModelWarmup\x12\x12\n\x04na'
    b'me\x18\x01 \x01(\tR\x04name\x12\x1d\n\nbatch_size\x18\x02 \x01(\rR\tbatchSize\x12:\n\x06inputs\x18\x03 \x03(\x0b2".inferenc'
    b'e.ModelWarmup.InputsEntryR\x06inputs\x12\x14\n\x05count\x18\x04 \x01(\rR\x05count\x1a\xcc\x01\n\x05Input\x120\n\tdat'
    b'a_type\x18\x01 \x01(\x0e2\x13.inference.DataTypeR\x08dataType\x12\x12\n\x04dims\x18\x02 \x03(\x03R\x04dims\x12\x1d\n\tzero_'
    b'data\x18\x03 \x01(\x08H\x00R\x08zeroData\x12!\n\x0brandom_data\x18\x04 \x01(\x08H\x00R\nrandomData\x12(\n\x0finput_data_'
    b'file\x18\x05 \x01(\tH\x00R\rinputDataFileB\x11\n\x0finput_data_type\x1aW\n\x0bInputsEntry\x12\x10\n\x03key\x18\x01 \x01'
    b'(\tR\x03key\x122\n\x05value\x18\x02 \x01(\x0b2\x1c.inference.ModelWarmup.InputR\x05value:\x028\x01"\xac\x07\n\x0bMode'
    b'lConfig\x12\x12\n\x04name\x18\x01 \x01(\tR\x04name\x12\x1a\n\x08platform\x18\x02 \x01(\tR\x08platform\x12D\n\x0eversion_polic'
    b'y\x18\x03 \x01(\x0b2\x1d.inference.ModelVersionPolicyR\rversionPolicy\x12$\n\x0emax_batch_size\x18'
    b'\x04 \x01(\x05R\x0cmaxBatchSize\x12+\n\x05input\x18\x05 \x03(\x0b2\x15.inference.ModelInputR\x05input\x12.\n\x06outp'
    b'ut\x18\x06 \x03(\x0b2\x16.inference.ModelOutputR\x06output\x12D\n\x0einstance_group\x18\x07 \x03(\x0b2\x1d.infer'
    b'ence.ModelInstanceGroupR\rinstanceGroup\x124\n\x16default_model_filename\x18\x08 \x01(\tR\x14'
    b'defaultModelFilename\x12G\n\x0bmetric_tags\x18\n \x03(\x0b2&.inference.ModelConfig.Metric'
    b'TagsEntryR\nmetricTags\x12L\n\x10dynamic_batching\x18\x0b \x01(\x0b2\x1f.inference.ModelDynamic'
    b'BatchingH\x00R\x0fdynamicBatching\x12F\n\x0coptimization\x18\x0c \x01(\x0b2".inference.ModelOptim'
    b'izationPolicyR\x0coptimization\x12F\n\nparameters\x18\x0e \x03(\x0b2&.inference.ModelConfig.'
    b'ParametersEntryR\nparameters\x129\n\x0cmodel_warmup\x18\x10 \x03(\x0b2\x16.inference.ModelWarmu'
    b'pR\x0bmodelWarmup\x12\x18\n\x07backend\x18\x11 \x01(\tR\x07backend\x1a=\n\x0fMetricTagsEntry\x12\x10\n\x03key\x18\x01 \x01(\t'
    b'R\x03key\x12\x14\n\x05value\x18\x02 \x01(\tR\x05value:\x028\x01\x1aX\n\x0fParametersEntry\x12\x10\n\x03key\x18\x01 \x01(\tR\x03key\x12/\n\x05'
    b'value\x18\x02 \x01(\x0b2\x19.inference.ModelParameterR\x05value:\x028\x01B\x13\n\x11scheduling_choice"F'
    b'\n\x16ModelStatisticsRequest\x12\x12\n\x04name\x18\x01 \x01(\tR\x04name\x12\x18\n\x07version\x18\x02 \x01(\tR\x07version"V'
    b'\n\x17ModelStatisticsResponse\x12;\n\x0bmodel_stats\x18\x01 \x03(\x0b2\x1a.inference.ModelStatisti'
    b'csR\nmodelStats"9\n\x11StatisticDuration\x12\x14\n\x05count\x18\x01 \x01(\x04R\x05count\x12\x0e\n\x02ns\x18\x02 \x01(\x04R\x02n'
    b's"\xf2\x03\n\x0fInferStatistics\x126\n\x07success\x18\x01 \x01(\x0b2\x1c.inference.StatisticDurationR\x07su'
    b'ccess\x120\n\x04fail\x18\x02 \x01(\x0b2\x1c.inference.StatisticDurationR\x04fail\x122\n\x05queue\x18\x03 \x01(\x0b2\x1c'
    b'.inference.StatisticDurationR\x05queue\x12A\n\rcompute_input\x18\x04 \x01(\x0b2\x1c.inference.S'
    b'tatisticDurationR\x0ccomputeInput\x12A\n\rcompute_infer\x18\x05 \x01(\x0b2\x1c.inference.Statis'
    b'ticDurationR\x0ccomputeInfer\x12C\n\x0ecompute_output\x18\x06 \x01(\x0b2\x1c.inference.StatisticD'
    b'urationR\rcomputeOutput\x129\n\tcache_hit\x18\x07 \x01(\x0b2\x1c.inference.StatisticDurationR'
    b'\x08cacheHit\x12;\n\ncache_miss\x18\x08 \x01(\x0b2\x1c.inference.StatisticDurationR\tcacheMiss"N'
    b'\n\x0bMemoryUsage\x12\x12\n\x04type\x18\x01 \x01(\tR\x04type\x12\x0e\n\x02id\x18\x02 \x01(\x03R\x02id\x12\x1b\n\tbyte_size\x18\x03 \x01(\x04R\x08by'
    b'teSize"\x80\x02\n\x14InferBatchStatistics\x12\x1d\n\nbatch_size\x18\x01 \x01(\x04R\tbatchSize\x12A\n\rcomput'
    b'e_input\x18\x02 \x01(\x0b2\x1c.inference.StatisticDurationR\x0ccomputeInput\x12A\n\rcompute_inf'
    b'er\x18\x03 \x01(\x0b2\x1c.inference.StatisticDurationR\x0ccomputeInfer\x12C\n\x0ecompute_output\x18\x04'
    b' \x01(\x0b2\x1c.inference.StatisticDurationR\rcomputeOutput"\xfa\x02\n\x0fModelStatistics\x12\x12\n'
    b'\x04name\x18\x01 \x01(\tR\x04name\x12\x18\n\x07version\x18\x02 \x01(\tR\x07version\x12%\n\x0elast_inference\x18\x03 \x01(\x04R\rlas'
    b"tInference\x12'\n\x0finference_count\x18\x04 \x01(\x04R\x0einferenceCount\x12'\n\x0fexecution_count\x18\x05"
    b' \x01(\x04R\x0eexecutionCount\x12C\n\x0finference_stats\x18\x06 \x01(\x0b2\x1a.inference.InferStatistic'
    b'sR\x0einferenceStats\x12@\n\x0bbatch_stats\x18\x07 \x03(\x0b2\x1f.inference.InferBatchStatisticsR'
    b'\nbatchStats\x129\n\x0cmemory_usage\x18\x08 \x03(\x0b2\x16.inference.MemoryUsageR\x0bmemoryUsage"\xba'
    b'\x01\n\x18ModelRepositoryParameter\x12\x1f\n\nbool_param\x18\x01 \x01(\x08H\x00R\tboolParam\x12!\n\x0bint64_pa'
    b'ram\x18\x02 \x01(\x03H\x00R\nint64Param\x12#\n\x0cstring_param\x18\x03 \x01(\tH\x00R\x0bstringParam\x12!\n\x0bbytes_pa'
    b'ram\x18\x04 \x01(\x0cH\x00R\nbytesParamB\x12\n\x10parameter_choice"W\n\x16RepositoryIndexRequest\x12\'\n'
    b'\x0frepository_name\x18\x01 \x01(\tR\x0erepositoryName\x12\x14\n\x05ready\x18\x02 \x01(\x08R\x05ready"\xca\x01\n\x17Reposit'
    b'oryIndexResponse\x12E\n\x06models\x18\x01 \x03(\x0b2-.inference.RepositoryIndexResponse.Mod'
    b'elIndexR\x06models\x1ah\n\nModelIndex\x12\x12\n\x04name\x18\x01 \x01(\tR\x04name\x12\x18\n\x07version\x18\x02 \x01(\tR\x07vers'
    b'ion\x12\x14\n\x05state\x18\x03 \x01(\tR\x05state\x12\x16\n\x06reason\x18\x04 \x01(\tR\x06reason"\x9f\x02\n\x1aRepositoryModelLoa'
    b"dRequest\x12'\n\x0frepository_name\x18\x01 \x01(\tR\x0erepositoryName\x12\x1d\n\nmodel_name\x18\x02 \x01(\tR\tm"
    b'odelName\x12U\n\nparameters\x18\x03 \x03(\x0b25.inference.RepositoryModelLoadRequest.Para'
    b'metersEntryR\nparameters\x1ab\n\x0fParametersEntry\x12\x10\n\x03key\x18\x01 \x01(\tR\x03key\x129\n\x05value\x18\x02 '
    b'\x01(\x0b2#.inference.ModelRepositoryParameterR\x05value:\x028\x01"\x1d\n\x1bRepositoryModelLo'
    b'adResponse"\xa3\x02\n\x1cRepositoryModelUnloadRequest\x12\'\n\x0frepository_name\x18\x01 \x01(\tR\x0ere'
    b'positoryName\x12\x1d\n\nmodel_name\x18\x02 \x01(\tR\tmodelName\x12W\n\nparameters\x18\x03 \x03(\x0b27.infere'
    b'nce.RepositoryModelUnloadRequest.ParametersEntryR\nparameters\x1ab\n\x0fParamete'
    b'rsEntry\x12\x10\n\x03key\x18\x01 \x01(\tR\x03key\x129\n\x05value\x18\x02 \x01(\x0b2#.inference.ModelRepositoryPara'
    b'meterR\x05value:\x028\x01"\x1f\n\x1dRepositoryModelUnloadResponse"5\n\x1fSystemSharedMemoryS'
    b'tatusRequest\x12\x12\n\x04name\x18\x01 \x01(\tR\x04name"\xd7\x02\n SystemSharedMemoryStatusResponse\x12R\n'
    b'\x07regions\x18\x01 \x03(\x0b28.inference.SystemSharedMemoryStatusResponse.RegionsEntry'
    b'R\x07regions\x1ai\n\x0cRegionStatus\x12\x12\n\x04name\x18\x01 \x01(\tR\x04name\x12\x10\n\x03key\x18\x02 \x01(\tR\x03key\x12\x16\n\x06offse'
    b't\x18\x03 \x01(\x04R\x06offset\x12\x1b\n\tbyte_size\x18\x04 \x01(\x04R\x08byteSize\x1at\n\x0cRegionsEntry\x12\x10\n\x03key\x18\x01 \x01('
    b'\tR\x03key\x12N\n\x05value\x18\x02 \x01(\x0b28.inference.SystemSharedMemoryStatusResponse.Regio'
    b'nStatusR\x05value:\x028\x01"~\n!SystemSharedMemoryRegisterRequest\x12\x12\n\x04name\x18\x01 \x01(\tR\x04n'
    b'ame\x12\x10\n\x03key\x18\x02 \x01(\tR\x03key\x12\x16\n\x06offset\x18\x03 \x01(\x04R\x06offset\x12\x1b\n\tbyte_size\x18\x04 \x01(\x04R\x08byteSi'
    b'ze"$\n"SystemSharedMemoryRegisterResponse"9\n#SystemSharedMemoryUnregister'
    b'Request\x12\x12\n\x04name\x18\x01 \x01(\tR\x04name"&\n$SystemSharedMemoryUnregisterResponse"3\n\x1dC'
    b'udaSharedMemoryStatusRequest\x12\x12\n\x04name\x18\x01 \x01(\tR\x04name"\xc4\x02\n\x1eCudaSharedMemorySta'
    b'tusResponse\x12P\n\x07regions\x18\x01 \x03(\x0b26.inference.CudaSharedMemoryStatusResponse.'
    b'RegionsEntryR\x07regions\x1a\\\n\x0cRegionStatus\x12\x12\n\x04name\x18\x01 \x01(\tR\x04name\x12\x1b\n\tdevice_id\x18\x02'
    b' \x01(\x04R\x08deviceId\x12\x1b\n\tbyte_size\x18\x03 \x01(\x04R\x08byteSize\x1ar\n\x0cRegionsEntry\x12\x10\n\x03key\x18\x01 \x01(\t'
    b'R\x03key\x12L\n\x05value\x18\x02 \x01(\x0b26.inference.CudaSharedMemoryStatusResponse.RegionSt'
    b'atusR\x05value:\x028\x01"\x8e\x01\n\x1fCudaSharedMemoryRegisterRequest\x12\x12\n\x04name\x18\x01 \x01(\tR\x04name\x12'
    b'\x1d\n\nraw_handle\x18\x02 \x01(\x0cR\trawHandle\x12\x1b\n\tdevice_id\x18\x03 \x01(\x03R\x08deviceId\x12\x1b\n\tbyte_size'
    b'\x18\x04 \x01(\x04R\x08byteSize""\n CudaSharedMemoryRegisterResponse"7\n!CudaSharedMemory'
    b'UnregisterRequest\x12\x12\n\x04name\x18\x01 \x01(\tR\x04name"$\n"CudaSharedMemoryUnregisterRespo'
    b'nse"\x8e\x02\n\x13TraceSettingRequest\x12H\n\x08settings\x18\x01 \x03(\x0b2,.inference.TraceSettingRe'
    b'quest.SettingsEntryR\x08settings\x12\x1d\n\nmodel_name\x18\x02 \x01(\tR\tmodelName\x1a$\n\x0cSettingV'
    b'alue\x12\x14\n\x05value\x18\x01 \x03(\tR\x05value\x1ah\n\rSettingsEntry\x12\x10\n\x03key\x18\x01 \x01(\tR\x03key\x12A\n\x05value\x18\x02'
    b' \x01(\x0b2+.inference.TraceSettingRequest.SettingValueR\x05value:\x028\x01"\xf2\x01\n\x14TraceSe'
    b'ttingResponse\x12I\n\x08settings\x18\x01 \x03(\x0b2-.inference.TraceSettingResponse.Setting'
    b'sEntryR\x08settings\x1a$\n\x0cSettingValue\x12\x14\n\x05value\x18\x01 \x03(\tR\x05value\x1ai\n\rSettingsEntry\x12'
    b'\x10\n\x03key\x18\x01 \x01(\tR\x03key\x12B\n\x05value\x18\x02 \x01(\x0b2,.inference.TraceSettingResponse.Settin'
    b'gValueR\x05value:\x028\x01"\xd6\x02\n\x12LogSettingsRequest\x12G\n\x08settings\x18\x01 \x03(\x0b2+.inference.L'
    b'ogSettingsRequest.SettingsEntryR\x08settings\x1a\x8d\x01\n\x0cSettingValue\x12\x1f\n\nbool_param'
    b'\x18\x01 \x01(\x08H\x00R\tboolParam\x12#\n\x0cuint32_param\x18\x02 \x01(\rH\x00R\x0buint32Param\x12#\n\x0cstring_param'
    b'\x18\x03 \x01(\tH\x00R\x0bstringParamB\x12\n\x10parameter_choice\x1ag\n\rSettingsEntry\x12\x10\n\x03key\x18\x01 \x01(\tR'
    b'\x03key\x12@\n\x05value\x18\x02 \x01(\x0b2*.inference.LogSettingsRequest.SettingValueR\x05value:\x02'
    b'8\x01"\xd9\x02\n\x13LogSettingsResponse\x12H\n\x08settings\x18\x01 \x03(\x0b2,.inference.LogSettingsResp'
    b'onse.SettingsEntryR\x08settings\x1a\x8d\x01\n\x0cSettingValue\x12\x1f\n\nbool_param\x18\x01 \x01(\x08H\x00R\tboo'
    b'lParam\x12#\n\x0cuint32_param\x18\x02 \x01(\rH\x00R\x0buint32Param\x12#\n\x0cstring_param\x18\x03 \x01(\tH\x00R\x0bstr'
    b'ingParamB\x12\n\x10parameter_choice\x1ah\n\rSettingsEntry\x12\x10\n\x03key\x18\x01 \x01(\tR\x03key\x12A\n\x05value'
    b'\x18\x02 \x01(\x0b2+.inference.LogSettingsResponse.SettingValueR\x05value:\x028\x01*\xfa\x01\n\x08DataT'
    b'ype\x12\x10\n\x0cTYPE_INVALID\x10\x00\x12\r\n\tTYPE_BOOL\x10\x01\x12\x0e\n\nTYPE_UINT8\x10\x02\x12\x0f\n\x0bTYPE_UINT16\x10\x03\x12\x0f\n'
    b'\x0bTYPE_UINT32\x10\x04\x12\x0f\n\x0bTYPE_UINT64\x10\x05\x12\r\n\tTYPE_INT8\x10\x06\x12\x0e\n\nTYPE_INT16\x10\x07\x12\x0e\n\nTYPE_I'
    b'NT32\x10\x08\x12\x0e\n\nTYPE_INT64\x10\t\x12\r\n\tTYPE_FP16\x10\n\x12\r\n\tTYPE_FP32\x10\x0b\x12\r\n\tTYPE_FP64\x10\x0c\x12\x0f\n\x0bT'
    b'YPE_STRING\x10\r\x12\r\n\tTYPE_BF16\x10\x0e2\xb7\x0f\n\x14GRPCInferenceService\x12K\n\nServerLive\x12\x1c.inf'
    b'erence.ServerLiveRequest\x1a\x1d.inference.ServerLiveResponse"\x00\x12N\n\x0bServerReady'
    b'\x12\x1d.inference.ServerReadyRequest\x1a\x1e.inference.ServerReadyResponse"\x00\x12K\n\nMod'
    b'elReady\x12\x1c.inference.ModelReadyRequest\x1a\x1d.inference.ModelReadyResponse"\x00\x12W'
    b'\n\x0eServerMetadata\x12 .inference.ServerMetadataRequest\x1a!.inference.ServerMet'
    b'adataResponse"\x00\x12T\n\rModelMetadata\x12\x1f.inference.ModelMetadataRequest\x1a .infe'
    b'rence.ModelMetadataResponse"\x00\x12N\n\x0bModelConfig\x12\x1d.inference.ModelConfigRequ'
    b'est\x1a\x1e.inference.ModelConfigResponse"\x00\x12Z\n\x0fModelStatistics\x12!.inference.Mod'
    b'elStatisticsRequest\x1a".inference.ModelStatisticsResponse"\x00\x12K\n\nModelInfer\x12'
    b'\x1c.inference.ModelInferRequest\x1a\x1d.inference.ModelInferResponse"\x00\x12Z\n\x0fReposi'
    b'toryIndex\x12!.inference.RepositoryIndexRequest\x1a".inference.RepositoryIndex'
    b'Response"\x00\x12f\n\x13RepositoryModelLoad\x12%.inference.RepositoryModelLoadRequest'
    b'\x1a&.inference.RepositoryModelLoadResponse"\x00\x12l\n\x15RepositoryModelUnload\x12\'.in'
    b'ference.RepositoryModelUnloadRequest\x1a(.inference.RepositoryModelUnloadRe'
    b'sponse"\x00\x12[\n\x10ModelStreamInfer\x12\x1c.inference.ModelInferRequest\x1a#.inference.M'
    b'odelStreamInferResponse"\x00(\x010\x01\x12u\n\x18SystemSharedMemoryStatus\x12*.inference.Sy'
    b'stemSharedMemoryStatusRequest\x1a+.inference.SystemSharedMemoryStatusRespon'
    b'se"\x00\x12{\n\x1aSystemSharedMemoryRegister\x12,.inference.SystemSharedMemoryRegiste'
    b'rRequest\x1a-.inference.SystemSharedMemoryRegisterResponse"\x00\x12\x81\x01\n\x1cSystemShar'
    b'edMemoryUnregister\x12..inference.SystemSharedMemoryUnregisterRequest\x1a/.inf'
    b'erence.SystemSharedMemoryUnregisterResponse"\x00\x12o\n\x16CudaSharedMemoryStatus\x12'
    b'(.inference.CudaSharedMemoryStatusRequest\x1a).inference.CudaSharedMemorySt'
    b'atusResponse"\x00\x12u\n\x18CudaSharedMemoryRegister\x12*.inference.CudaSharedMemoryR'
    b'egisterRequest\x1a+.inference.CudaSharedMemoryRegisterResponse"\x00\x12{\n\x1aCudaSha'
    b'redMemoryUnregister\x12,.inference.CudaSharedMemoryUnregisterRequest\x1a-.infe'
    b'rence.CudaSharedMemoryUnregisterResponse"\x00\x12Q\n\x0cTraceSetting\x12\x1e.inference.T'
    b'raceSettingRequest\x1a\x1f.inference.TraceSettingResponse"\x00\x12N\n\x0bLogSettings\x12\x1d.i'
    b'nference.LogSettingsRequest\x1a\x1e.inference.LogSettingsResponse"\x00b\x06proto3',
    'inference.proto',
)

_classes = private_pool.message_classes(DESCRIPTOR, __name__)
ServerLiveRequest = _classes['ServerLiveRequest']
ServerLiveResponse = _classes['ServerLiveResponse']
ServerReadyRequest = _classes['ServerReadyRequest']
ServerReadyResponse = _classes['ServerReadyResponse']
ModelReadyRequest = _classes['ModelReadyRequest']
ModelReadyResponse = _classes['ModelReadyResponse']
ServerMetadataRequest = _classes['ServerMetadataRequest']
ServerMetadataResponse = _classes['ServerMetadataResponse']
ModelMetadataRequest = _classes['ModelMetadataRequest']
ModelMetadataResponse = _classes['ModelMetadataResponse']
InferParameter = _classes['InferParameter']
InferTensorContents = _classes['InferTensorContents']
ModelInferRequest = _classes['ModelInferRequest']
ModelInferResponse = _classes['ModelInferResponse']
ModelStreamInferResponse = _classes['ModelStreamInferResponse']
ModelConfigRequest = _classes['ModelConfigRequest']
ModelConfigResponse = _classes['ModelConfigResponse']
ModelInstanceGroup = _classes['ModelInstanceGroup']
ModelVersionPolicy = _classes['ModelVersionPolicy']
ModelInput = _classes['ModelInput']
ModelOutput = _classes['ModelOutput']
ModelQueuePolicy = _classes['ModelQueuePolicy']
ModelDynamicBatching = _classes['ModelDynamicBatching']
ModelParameter = _classes['ModelParameter']
ModelOptimizationPolicy = _classes['ModelOptimizationPolicy']
ModelWarmup = _classes['ModelWarmup']
ModelConfig = _classes['ModelConfig']
ModelStatisticsRequest = _classes['ModelStatisticsRequest']
ModelStatisticsResponse = _classes['ModelStatisticsResponse']
StatisticDuration = _classes['StatisticDuration']
InferStatistics = _classes['InferStatistics']
MemoryUsage = _classes['MemoryUsage']
InferBatchStatistics = _classes['InferBatchStatistics']
ModelStatistics = _classes['ModelStatistics']
ModelRepositoryParameter = _classes['ModelRepositoryParameter']
RepositoryIndexRequest = _classes['RepositoryIndexRequest']
RepositoryIndexResponse = _classes['RepositoryIndexResponse']
RepositoryModelLoadRequest = _classes['RepositoryModelLoadRequest']
RepositoryModelLoadResponse = _classes['RepositoryModelLoadResponse']
RepositoryModelUnloadRequest = _classes['RepositoryModelUnloadRequest']
RepositoryModelUnloadResponse = _classes['RepositoryModelUnloadResponse']
SystemSharedMemoryStatusRequest = _classes['SystemSharedMemoryStatusRequest']
SystemSharedMemoryStatusResponse = _classes['SystemSharedMemoryStatusResponse']
SystemSharedMemoryRegisterRequest = _classes['SystemSharedMemoryRegisterRequest']
SystemSharedMemoryRegisterResponse = _classes['SystemSharedMemoryRegisterResponse']
SystemSharedMemoryUnregisterRequest = _classes['SystemSharedMemoryUnregisterRequest']
SystemSharedMemoryUnregisterResponse = _classes['SystemSharedMemoryUnregisterResponse']
CudaSharedMemoryStatusRequest = _classes['CudaSharedMemoryStatusRequest']
CudaSharedMemoryStatusResponse = _classes['CudaSharedMemoryStatusResponse']
CudaSharedMemoryRegisterRequest = _classes['CudaSharedMemoryRegisterRequest']
CudaSharedMemoryRegisterResponse = _classes['CudaSharedMemoryRegisterResponse']
CudaSharedMemoryUnregisterRequest = _classes['CudaSharedMemoryUnregisterRequest']
CudaSharedMemoryUnregisterResponse = _classes['CudaSharedMemoryUnregisterResponse']
TraceSettingRequest = _classes['TraceSettingRequest']
TraceSettingResponse = _classes['TraceSettingResponse']
LogSettingsRequest = _classes['LogSettingsRequest']
LogSettingsResponse = _classes['LogSettingsResponse']
