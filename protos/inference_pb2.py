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
    b'(\tR\x03key\x122\n\x05value\x18\x02 \x01(\x0b2\x1c.inference.ModelWarmup.InputR\x05value:\x028\x01"A\n\x0fModel'
    b'Operations\x12.\n\x13op_library_filename\x18\x01 \x03(\tR\x11opLibraryFilename"\xf3\x07\n\x0bModelConf'
    b'ig\x12\x12\n\x04name\x18\x01 \x01(\tR\x04name\x12\x1a\n\x08platform\x18\x02 \x01(\tR\x08platform\x12D\n\x0eversion_policy\x18\x03 \x01'
    b'(\x0b2\x1d.inference.ModelVersionPolicyR\rversionPolicy\x12$\n\x0emax_batch_size\x18\x04 \x01(\x05'
    b'R\x0cmaxBatchSize\x12+\n\x05input\x18\x05 \x03(\x0b2\x15.inference.ModelInputR\x05input\x12.\n\x06output\x18\x06 '
    b'\x03(\x0b2\x16.inference.ModelOutputR\x06output\x12D\n\x0einstance_group\x18\x07 \x03(\x0b2\x1d.inference.'
    b'ModelInstanceGroupR\rinstanceGroup\x124\n\x16default_model_filename\x18\x08 \x01(\tR\x14defau'
    b'ltModelFilename\x12G\n\x0bmetric_tags\x18\n \x03(\x0b2&.inference.ModelConfig.MetricTagsE'
    b'ntryR\nmetricTags\x12L\n\x10dynamic_batching\x18\x0b \x01(\x0b2\x1f.inference.ModelDynamicBatch'
    b'ingH\x00R\x0fdynamicBatching\x12F\n\x0coptimization\x18\x0c \x01(\x0b2".inference.ModelOptimizati'
    b'onPolicyR\x0coptimization\x12F\n\nparameters\x18\x0e \x03(\x0b2&.inference.ModelConfig.Param'
    b'etersEntryR\nparameters\x129\n\x0cmodel_warmup\x18\x10 \x03(\x0b2\x16.inference.ModelWarmupR\x0bmo'
    b'delWarmup\x12\x18\n\x07backend\x18\x11 \x01(\tR\x07backend\x12E\n\x10model_operations\x18\x12 \x01(\x0b2\x1a.inferenc'
    b'e.ModelOperationsR\x0fmodelOperations\x1a=\n\x0fMetricTagsEntry\x12\x10\n\x03key\x18\x01 \x01(\tR\x03key\x12'
    b'\x14\n\x05value\x18\x02 \x01(\tR\x05value:\x028\x01\x1aX\n\x0fParametersEntry\x12\x10\n\x03key\x18\x01 \x01(\tR\x03key\x12/\n\x05value\x18'
    b'\x02 \x01(\x0b2\x19.inference.ModelParameterR\x05value:\x028\x01B\x13\n\x11scheduling_choice"F\n\x16Mode'
    b'lStatisticsRequest\x12\x12\n\x04name\x18\x01 \x01(\tR\x04name\x12\x18\n\x07version\x18\x02 \x01(\tR\x07version"V\n\x17Mode'
    b'lStatisticsResponse\x12;\n\x0bmodel_stats\x18\x01 \x03(\x0b2\x1a.inference.ModelStatisticsR\nmo'
    b'delStats"9\n\x11StatisticDuration\x12\x14\n\x05count\x18\x01 \x01(\x04R\x05count\x12\x0e\n\x02ns\x18\x02 \x01(\x04R\x02ns"\xf2\x03\n\x0f'
    b'InferStatistics\x126\n\x07success\x18\x01 \x01(\x0b2\x1c.inference.StatisticDurationR\x07success\x12'
    b'0\n\x04fail\x18\x02 \x01(\x0b2\x1c.inference.StatisticDurationR\x04fail\x122\n\x05queue\x18\x03 \x01(\x0b2\x1c.infer'
    b'ence.StatisticDurationR\x05queue\x12A\n\rcompute_input\x18\x04 \x01(\x0b2\x1c.inference.Statist'
    b'icDurationR\x0ccomputeInput\x12A\n\rcompute_infer\x18\x05 \x01(\x0b2\x1c.inference.StatisticDur'
    b'ationR\x0ccomputeInfer\x12C\n\x0ecompute_output\x18\x06 \x01(\x0b2\x1c.inference.StatisticDuratio'
    b'nR\rcomputeOutput\x129\n\tcache_hit\x18\x07 \x01(\x0b2\x1c.inference.StatisticDurationR\x08cache'
    b'Hit\x12;\n\ncache_miss\x18\x08 \x01(\x0b2\x1c.inference.StatisticDurationR\tcacheMiss"N\n\x0bMemo'
    b'ryUsage\x12\x12\n\x04type\x18\x01 \x01(\tR\x04type\x12\x0e\n\x02id\x18\x02 \x01(\x03R\x02id\x12\x1b\n\tbyte_size\x18\x03 \x01(\x04R\x08byteSize'
    b'"\x80\x02\n\x14InferBatchStatistics\x12\x1d\n\nbatch_size\x18\x01 \x01(\x04R\tbatchSize\x12A\n\rcompute_inpu'
    b't\x18\x02 \x01(\x0b2\x1c.inference.StatisticDurationR\x0ccomputeInput\x12A\n\rcompute_infer\x18\x03 \x01'
    b'(\x0b2\x1c.inference.StatisticDurationR\x0ccomputeInfer\x12C\n\x0ecompute_output\x18\x04 \x01(\x0b2\x1c'
    b'.inference.StatisticDurationR\rcomputeOutput"\xfa\x02\n\x0fModelStatistics\x12\x12\n\x04name\x18'
    b'\x01 \x01(\tR\x04name\x12\x18\n\x07version\x18\x02 \x01(\tR\x07version\x12%\n\x0elast_inference\x18\x03 \x01(\x04R\rlastInfer'
    b"ence\x12'\n\x0finference_count\x18\x04 \x01(\x04R\x0einferenceCount\x12'\n\x0fexecution_count\x18\x05 \x01(\x04R\x0e"
    b'executionCount\x12C\n\x0finference_stats\x18\x06 \x01(\x0b2\x1a.inference.InferStatisticsR\x0einf'
    b'erenceStats\x12@\n\x0bbatch_stats\x18\x07 \x03(\x0b2\x1f.inference.InferBatchStatisticsR\nbatch'
    b'Stats\x129\n\x0cmemory_usage\x18\x08 \x03(\x0b2\x16.inference.MemoryUsageR\x0bmemoryUsage"\xba\x01\n\x18Mod'
    b'elRepositoryParameter\x12\x1f\n\nbool_param\x18\x01 \x01(\x08H\x00R\tboolParam\x12!\n\x0bint64_param\x18\x02 '
    b'\x01(\x03H\x00R\nint64Param\x12#\n\x0cstring_param\x18\x03 \x01(\tH\x00R\x0bstringParam\x12!\n\x0bbytes_param\x18\x04 '
    b'\x01(\x0cH\x00R\nbytesParamB\x12\n\x10parameter_choice"W\n\x16RepositoryIndexRequest\x12\'\n\x0frepos'
    b'itory_name\x18\x01 \x01(\tR\x0erepositoryName\x12\x14\n\x05ready\x18\x02 \x01(\x08R\x05ready"\xca\x01\n\x17RepositoryInd'
    b'exResponse\x12E\n\x06models\x18\x01 \x03(\x0b2-.inference.RepositoryIndexResponse.ModelInde'
    b'xR\x06models\x1ah\n\nModelIndex\x12\x12\n\x04name\x18\x01 \x01(\tR\x04name\x12\x18\n\x07version\x18\x02 \x01(\tR\x07version\x12\x14\n'
    b'\x05state\x18\x03 \x01(\tR\x05state\x12\x16\n\x06reason\x18\x04 \x01(\tR\x06reason"\x9f\x02\n\x1aRepositoryModelLoadReque'
    b"st\x12'\n\x0frepository_name\x18\x01 \x01(\tR\x0erepositoryName\x12\x1d\n\nmodel_name\x18\x02 \x01(\tR\tmodelNa"
    b'me\x12U\n\nparameters\x18\x03 \x03(\x0b25.inference.RepositoryModelLoadRequest.Parameters'
    b'EntryR\nparameters\x1ab\n\x0fParametersEntry\x12\x10\n\x03key\x18\x01 \x01(\tR\x03key\x129\n\x05value\x18\x02 \x01(\x0b2#.'
    b'inference.ModelRepositoryParameterR\x05value:\x028\x01"\x1d\n\x1bRepositoryModelLoadResp'
    b'onse"\xa3\x02\n\x1cRepositoryModelUnloadRequest\x12\'\n\x0frepository_name\x18\x01 \x01(\tR\x0ereposito'
    b'ryName\x12\x1d\n\nmodel_name\x18\x02 \x01(\tR\tmodelName\x12W\n\nparameters\x18\x03 \x03(\x0b27.inference.Re'
    b'positoryModelUnloadRequest.ParametersEntryR\nparameters\x1ab\n\x0fParametersEntr'
    b'y\x12\x10\n\x03key\x18\x01 \x01(\tR\x03key\x129\n\x05value\x18\x02 \x01(\x0b2#.inference.ModelRepositoryParameterR'
    b'\x05value:\x028\x01"\x1f\n\x1dRepositoryModelUnloadResponse"5\n\x1fSystemSharedMemoryStatusR'
    b'equest\x12\x12\n\x04name\x18\x01 \x01(\tR\x04name"\xd7\x02\n SystemSharedMemoryStatusResponse\x12R\n\x07regio'
    b'ns\x18\x01 \x03(\x0b28.inference.SystemSharedMemoryStatusResponse.RegionsEntryR\x07regi'
    b'ons\x1ai\n\x0cRegionStatus\x12\x12\n\x04name\x18\x01 \x01(\tR\x04name\x12\x10\n\x03key\x18\x02 \x01(\tR\x03key\x12\x16\n\x06offset\x18\x03 \x01('
    b'\x04R\x06offset\x12\x1b\n\tbyte_size\x18\x04 \x01(\x04R\x08byteSize\x1at\n\x0cRegionsEntry\x12\x10\n\x03key\x18\x01 \x01(\tR\x03key'
    b'\x12N\n\x05value\x18\x02 \x01(\x0b28.inference.SystemSharedMemoryStatusResponse.RegionStatu'
    b'sR\x05value:\x028\x01"~\n!SystemSharedMemoryRegisterRequest\x12\x12\n\x04name\x18\x01 \x01(\tR\x04name\x12\x10\n'
    b'\x03key\x18\x02 \x01(\tR\x03key\x12\x16\n\x06offset\x18\x03 \x01(\x04R\x06offset\x12\x1b\n\tbyte_size\x18\x04 \x01(\x04R\x08byteSize"$\n"'
    b'SystemSharedMemoryRegisterResponse"9\n#SystemSharedMemoryUnregisterReques'
    b't\x12\x12\n\x04name\x18\x01 \x01(\tR\x04name"&\n$SystemSharedMemoryUnregisterResponse"3\n\x1dCudaSha'
    b'redMemoryStatusRequest\x12\x12\n\x04name\x18\x01 \x01(\tR\x04name"\xc4\x02\n\x1eCudaSharedMemoryStatusRes'
    b'ponse\x12P\n\x07regions\x18\x01 \x03(\x0b26.inference.CudaSharedMemoryStatusResponse.Region'
    b'sEntryR\x07regions\x1a\\\n\x0cRegionStatus\x12\x12\n\x04name\x18\x01 \x01(\tR\x04name\x12\x1b\n\tdevice_id\x18\x02 \x01(\x04R\x08'
    b'deviceId\x12\x1b\n\tbyte_size\x18\x03 \x01(\x04R\x08byteSize\x1ar\n\x0cRegionsEntry\x12\x10\n\x03key\x18\x01 \x01(\tR\x03key\x12'
    b'L\n\x05value\x18\x02 \x01(\x0b26.inference.CudaSharedMemoryStatusResponse.RegionStatusR\x05'
    b'value:\x028\x01"\x8e\x01\n\x1fCudaSharedMemoryRegisterRequest\x12\x12\n\x04name\x18\x01 \x01(\tR\x04name\x12\x1d\n\nraw'
    b'_handle\x18\x02 \x01(\x0cR\trawHandle\x12\x1b\n\tdevice_id\x18\x03 \x01(\x03R\x08deviceId\x12\x1b\n\tbyte_size\x18\x04 \x01(\x04'
    b'R\x08byteSize""\n CudaSharedMemoryRegisterResponse"7\n!CudaSharedMemoryUnregi'
    b'sterRequest\x12\x12\n\x04name\x18\x01 \x01(\tR\x04name"$\n"CudaSharedMemoryUnregisterResponse"\x8e\x02'
    b'\n\x13TraceSettingRequest\x12H\n\x08settings\x18\x01 \x03(\x0b2,.inference.TraceSettingRequest.'
    b'SettingsEntryR\x08settings\x12\x1d\n\nmodel_name\x18\x02 \x01(\tR\tmodelName\x1a$\n\x0cSettingValue\x12\x14'
    b'\n\x05value\x18\x01 \x03(\tR\x05value\x1ah\n\rSettingsEntry\x12\x10\n\x03key\x18\x01 \x01(\tR\x03key\x12A\n\x05value\x18\x02 \x01(\x0b2+'
    b'.inference.TraceSettingRequest.SettingValueR\x05value:\x028\x01"\xf2\x01\n\x14TraceSettingR'
    b'esponse\x12I\n\x08settings\x18\x01 \x03(\x0b2-.inference.TraceSettingResponse.SettingsEntry'
    b'R\x08settings\x1a$\n\x0cSettingValue\x12\x14\n\x05value\x18\x01 \x03(\tR\x05value\x1ai\n\rSettingsEntry\x12\x10\n\x03key'
    b'\x18\x01 \x01(\tR\x03key\x12B\n\x05value\x18\x02 \x01(\x0b2,.inference.TraceSettingResponse.SettingValue'
    b'R\x05value:\x028\x01"\xd6\x02\n\x12LogSettingsRequest\x12G\n\x08settings\x18\x01 \x03(\x0b2+.inference.LogSett'
    b'ingsRequest.SettingsEntryR\x08settings\x1a\x8d\x01\n\x0cSettingValue\x12\x1f\n\nbool_param\x18\x01 \x01(\x08'
    b'H\x00R\tboolParam\x12#\n\x0cuint32_param\x18\x02 \x01(\rH\x00R\x0buint32Param\x12#\n\x0cstring_param\x18\x03 \x01(\t'
    b'H\x00R\x0bstringParamB\x12\n\x10parameter_choice\x1ag\n\rSettingsEntry\x12\x10\n\x03key\x18\x01 \x01(\tR\x03key\x12@'
    b'\n\x05value\x18\x02 \x01(\x0b2*.inference.LogSettingsRequest.SettingValueR\x05value:\x028\x01"\xd9\x02\n'
    b'\x13LogSettingsResponse\x12H\n\x08settings\x18\x01 \x03(\x0b2,.inference.LogSettingsResponse.S'
    b'ettingsEntryR\x08settings\x1a\x8d\x01\n\x0cSettingValue\x12\x1f\n\nbool_param\x18\x01 \x01(\x08H\x00R\tboolParam'
    b'\x12#\n\x0cuint32_param\x18\x02 \x01(\rH\x00R\x0buint32Param\x12#\n\x0cstring_param\x18\x03 \x01(\tH\x00R\x0bstringPar'
    b'amB\x12\n\x10parameter_choice\x1ah\n\rSettingsEntry\x12\x10\n\x03key\x18\x01 \x01(\tR\x03key\x12A\n\x05value\x18\x02 \x01(\x0b'
    b'2+.inference.LogSettingsResponse.SettingValueR\x05value:\x028\x01*\xfa\x01\n\x08DataType\x12\x10\n'
    b'\x0cTYPE_INVALID\x10\x00\x12\r\n\tTYPE_BOOL\x10\x01\x12\x0e\n\nTYPE_UINT8\x10\x02\x12\x0f\n\x0bTYPE_UINT16\x10\x03\x12\x0f\n\x0bTYPE_'
    b'UINT32\x10\x04\x12\x0f\n\x0bTYPE_UINT64\x10\x05\x12\r\n\tTYPE_INT8\x10\x06\x12\x0e\n\nTYPE_INT16\x10\x07\x12\x0e\n\nTYPE_INT32\x10\x08'
    b'\x12\x0e\n\nTYPE_INT64\x10\t\x12\r\n\tTYPE_FP16\x10\n\x12\r\n\tTYPE_FP32\x10\x0b\x12\r\n\tTYPE_FP64\x10\x0c\x12\x0f\n\x0bTYPE_ST'
    b'RING\x10\r\x12\r\n\tTYPE_BF16\x10\x0e2\xb7\x0f\n\x14GRPCInferenceService\x12K\n\nServerLive\x12\x1c.inference'
    b'.ServerLiveRequest\x1a\x1d.inference.ServerLiveResponse"\x00\x12N\n\x0bServerReady\x12\x1d.inf'
    b'erence.ServerReadyRequest\x1a\x1e.inference.ServerReadyResponse"\x00\x12K\n\nModelRead'
    b'y\x12\x1c.inference.ModelReadyRequest\x1a\x1d.inference.ModelReadyResponse"\x00\x12W\n\x0eServ'
    b'erMetadata\x12 .inference.ServerMetadataRequest\x1a!.inference.ServerMetadataR'
    b'esponse"\x00\x12T\n\rModelMetadata\x12\x1f.inference.ModelMetadataRequest\x1a .inference.'
    b'ModelMetadataResponse"\x00\x12N\n\x0bModelConfig\x12\x1d.inference.ModelConfigRequest\x1a\x1e.'
    b'inference.ModelConfigResponse"\x00\x12Z\n\x0fModelStatistics\x12!.inference.ModelStat'
    b'isticsRequest\x1a".inference.ModelStatisticsResponse"\x00\x12K\n\nModelInfer\x12\x1c.infe'
    b'rence.ModelInferRequest\x1a\x1d.inference.ModelInferResponse"\x00\x12Z\n\x0fRepositoryIn'
    b'dex\x12!.inference.RepositoryIndexRequest\x1a".inference.RepositoryIndexRespon'
    b'se"\x00\x12f\n\x13RepositoryModelLoad\x12%.inference.RepositoryModelLoadRequest\x1a&.inf'
    b'erence.RepositoryModelLoadResponse"\x00\x12l\n\x15RepositoryModelUnload\x12\'.inferenc'
    b'e.RepositoryModelUnloadRequest\x1a(.inference.RepositoryModelUnloadResponse'
    b'"\x00\x12[\n\x10ModelStreamInfer\x12\x1c.inference.ModelInferRequest\x1a#.inference.ModelSt'
    b'reamInferResponse"\x00(\x010\x01\x12u\n\x18SystemSharedMemoryStatus\x12*.inference.SystemSh'
    b'aredMemoryStatusRequest\x1a+.inference.SystemSharedMemoryStatusResponse"\x00\x12{'
    b'\n\x1aSystemSharedMemoryRegister\x12,.inference.SystemSharedMemoryRegisterReque'
    b'st\x1a-.inference.SystemSharedMemoryRegisterResponse"\x00\x12\x81\x01\n\x1cSystemSharedMemo'
    b'ryUnregister\x12..inference.SystemSharedMemoryUnregisterRequest\x1a/.inference'
    b'.SystemSharedMemoryUnregisterResponse"\x00\x12o\n\x16CudaSharedMemoryStatus\x12(.infe'
    b'rence.CudaSharedMemoryStatusRequest\x1a).inference.CudaSharedMemoryStatusRe'
    b'sponse"\x00\x12u\n\x18CudaSharedMemoryRegister\x12*.inference.CudaSharedMemoryRegiste'
    b'rRequest\x1a+.inference.CudaSharedMemoryRegisterResponse"\x00\x12{\n\x1aCudaSharedMem'
    b'oryUnregister\x12,.inference.CudaSharedMemoryUnregisterRequest\x1a-.inference.'
    b'CudaSharedMemoryUnregisterResponse"\x00\x12Q\n\x0cTraceSetting\x12\x1e.inference.TraceSe'
    b'ttingRequest\x1a\x1f.inference.TraceSettingResponse"\x00\x12N\n\x0bLogSettings\x12\x1d.inferen'
    b'ce.LogSettingsRequest\x1a\x1e.inference.LogSettingsResponse"\x00b\x06proto3',
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
ModelOperations = _classes['ModelOperations']
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
